#include "data/synth/words.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

namespace mxt::data::words {
namespace {

constexpr std::string_view kTownFirst[] = {
    "Ash",   "Bell",  "Birch", "Black", "Bridge", "Brook", "Castle", "Cedar",  "Clear", "Crest",
    "Deer",  "East",  "Elm",   "Fair",  "Glen",   "Gold",  "Green",  "Hart",   "High",  "Lake",
    "Maple", "Marsh", "Mill",  "North", "Oak",    "Pine",  "River",  "Spring", "Stone", "West",
};
constexpr std::string_view kTownLast[] = {
    "bury", "dale", "field", "ford", "gate", "ham", "haven", "land", "port", "ton", "ville", "wood",
};
constexpr std::string_view kPersonList[] = {
    "Mara",  "Jonas", "Elena", "Omar",  "Priya", "Lucas",  "Nina",   "Tariq",  "Sofia", "Peter",
    "Grace", "Henry", "Amina", "Felix", "Clara", "Victor", "Leila",  "Martin", "Rosa",  "David",
    "Hanna", "Oscar", "Julia", "Simon", "Alice", "Robert", "Nadia",  "Thomas", "Irene", "Samuel",
    "Paula", "Kevin", "Maya",  "Andre", "Linda", "Joseph", "Teresa", "Walter", "Ellen", "Bruno",
};
constexpr std::string_view kDishFirst[] = {
    "apple",  "bean",  "carrot", "cheese", "cherry", "chicken", "corn",   "fish", "garlic", "lemon",
    "lentil", "onion", "orange", "peach",  "pepper", "plum",    "potato", "rice", "tomato", "walnut",
};
constexpr std::string_view kDishLast[] = {
    "bread", "cake", "curry", "pasta", "pie", "pizza", "salad", "soup", "stew", "tart",
};
constexpr std::string_view kEventFirst[] = {
    "board", "budget", "dance", "design", "family", "garden",  "guitar", "music", "piano", "project",
    "sales", "school", "staff", "summer", "swim",   "teacher", "team",   "wine",  "yoga",  "youth",
};
constexpr std::string_view kEventLast[] = {
    "call", "class", "club", "dinner", "lesson", "lunch", "meeting", "party", "review", "training",
};
constexpr std::string_view kMessageList[] = {
    "I am running late",      "the keys are on the table",
    "dinner is ready",        "the meeting moved to noon",
    "I found your umbrella",  "the package has arrived",
    "please call me back",    "the train is delayed",
    "we need more milk",      "the report is finished",
    "the door code changed",  "I booked the tickets",
    "the car is fixed",       "lunch is on me",
    "the printer is broken",  "I left the office",
    "the kids are asleep",    "your order is here",
    "the test went well",     "I will bring dessert",
    "the plane has landed",   "the heating is off",
    "I parked outside",       "the store is closed",
    "we won the game",        "the invoice is paid",
    "the cat is fed",         "I sent the photos",
    "the room is booked",     "I forgot my wallet",
    "the bus is full",        "the cake is in the oven",
    "I am at the station",    "the garden looks great",
    "your laptop is charged", "the concert was wonderful",
    "I moved the boxes",      "the water is hot",
    "the shop opens at nine", "I fixed the lamp",
};

// One of a list; every fifth is the test split's.
std::string one(std::string_view choice, std::span<const std::string_view> list, Draws& draws) {
  const size_t fifths = list.size() / 5;
  if (draws.split() == Split::kTest) return std::string(list[draws.below(fifths) * 5 + 4]);
  const size_t i = draws.deal(choice, fifths * 4);
  return std::string(list[i / 4 * 5 + i % 4]);
}

// Two words of which each stands in both splits, and their pair in one.
std::string pair(std::string_view choice, std::span<const std::string_view> first, std::string_view between,
                 std::string_view choice_of_last, std::span<const std::string_view> last, Draws& draws) {
  size_t i, j;
  do i = draws.deal(choice, first.size()), j = draws.deal(choice_of_last, last.size());
  while (((i + j) % 5 == 4) != (draws.split() == Split::kTest));
  return fmt::format("{}{}{}", first[i], between, last[j]);
}

// Nine of ten: those of the lists keep the shapes of real words in the training.
bool made_up(Draws& draws) { return draws.make_up && draws.split() == Split::kTrain && draws.below(10) != 0; }

// "tavo", "shel", "brunimo": one to three syllables.
std::string word(Draws& draws) {
  constexpr std::string_view kStart[] = {"b",  "c",  "d",  "f",  "g",  "h",  "j",  "k",  "l",  "m",  "n", "p",
                                         "r",  "s",  "t",  "v",  "w",  "y",  "br", "ch", "cl", "dr", "f", "gr",
                                         "pl", "pr", "qu", "sh", "st", "th", "tr", "wh", "",   ""};
  constexpr std::string_view kMiddle[] = {"a", "e",  "i",  "o",  "u",  "a",  "e", "i",
                                          "o", "ee", "oo", "ai", "ea", "ou", "y"};
  constexpr std::string_view kEnd[] = {"",  "",  "",   "",   "n",  "r", "l",  "s", "t",
                                       "d", "m", "ck", "ng", "st", "x", "ll", "p", "g"};
  const uint64_t syllables = 1 + draws.below(3);
  std::string out;
  for (uint64_t i = 0; i < syllables; ++i) {
    out += kStart[draws.below(std::size(kStart))];
    out += kMiddle[draws.below(std::size(kMiddle))];
    out += kEnd[draws.below(std::size(kEnd))];
  }
  return out;
}

std::string name(Draws& draws) {
  std::string w = word(draws);
  w[0] = static_cast<char>(w[0] - 'a' + 'A');
  return w;
}

std::string words(Draws& draws, uint64_t count) {
  std::string out = word(draws);
  for (uint64_t i = 1; i < count; ++i) out += " " + word(draws);
  return out;
}

}  // namespace

std::string town(Draws& draws) {
  return made_up(draws) ? name(draws) : pair("town", kTownFirst, "", "end of town", kTownLast, draws);
}
std::string dish(Draws& draws) {
  return made_up(draws) ? words(draws, 2) : pair("dish", kDishFirst, " ", "kind of dish", kDishLast, draws);
}
std::string person(Draws& draws) { return made_up(draws) ? name(draws) : one("person", kPersonList, draws); }
std::string event_title(Draws& draws) {
  return made_up(draws) ? words(draws, 2) : pair("event", kEventFirst, " ", "kind of event", kEventLast, draws);
}
std::string message_text(Draws& draws) {
  return made_up(draws) ? words(draws, 3 + draws.below(4)) : one("message", kMessageList, draws);
}

}  // namespace mxt::data::words

#include "data/synth/words.h"

#include <algorithm>
#include <iterator>

namespace mxt::data::words {
namespace {

constexpr std::string_view kCityList[] = {
    "Oslo",    "Lima",   "Cairo",   "Madrid",  "Dublin",   "Athens",   "Vienna",  "Prague",  "Warsaw",   "Lisbon",
    "Boston",  "Denver", "Seattle", "Chicago", "Toronto",  "Montreal", "Havana",  "Bogota",  "Quito",    "Santiago",
    "Nairobi", "Lagos",  "Accra",   "Tunis",   "Berlin",   "Munich",   "Hamburg", "Zurich",  "Geneva",   "Milan",
    "Rome",    "Naples", "Paris",   "Lyon",    "Brussels", "London",   "Leeds",   "Glasgow", "Helsinki", "Stockholm",
    "Bergen",  "Riga",   "Vilnius", "Kyiv",    "Ankara",   "Tehran",   "Mumbai",  "Delhi",   "Kolkata",  "Bangkok",
    "Hanoi",   "Manila", "Jakarta", "Seoul",   "Tokyo",    "Osaka",    "Kyoto",   "Sydney",  "Perth",    "Auckland",
    "Porto",   "Seville", "Turin",  "Genoa",   "Bologna",  "Verona",   "Venice",  "Florence", "Palermo", "Antwerp",
    "Ghent",   "Bruges", "Utrecht", "Delft",   "Leiden",   "Bonn",     "Cologne", "Dresden", "Leipzig",  "Bremen",
    "Basel",   "Bern",   "Salzburg", "Graz",   "Krakow",   "Gdansk",   "Lublin",  "Brno",    "Bratislava", "Budapest",
    "Zagreb",  "Split",  "Sofia",   "Varna",   "Bucharest", "Izmir",   "Haifa",   "Amman",   "Doha",     "Muscat",
    "Karachi", "Lahore", "Chennai", "Pune",    "Colombo",  "Dhaka",    "Yangon",  "Taipei",  "Shanghai", "Nagoya",
    "Dallas",  "Austin", "Houston", "Miami",   "Atlanta",  "Portland", "Calgary", "Ottawa",  "Quebec",   "Halifax",
};
constexpr std::string_view kPersonList[] = {
    "Mara",  "Jonas", "Elena", "Omar",  "Priya", "Lucas",  "Nina",   "Tariq",  "Sofia", "Peter",
    "Grace", "Henry", "Amina", "Felix", "Clara", "Victor", "Leila",  "Martin", "Rosa",  "David",
    "Hanna", "Oscar", "Julia", "Simon", "Alice", "Robert", "Nadia",  "Thomas", "Irene", "Samuel",
    "Paula", "Kevin", "Maya",  "Andre", "Linda", "Joseph", "Teresa", "Walter", "Ellen", "Bruno",
};
constexpr std::string_view kTimerLabelList[] = {
    "pasta",   "laundry",  "eggs",     "tea",     "bread",      "rice",       "coffee", "cookies",  "soup",  "nap",
    "oven",    "pizza",    "homework", "dishes",  "workout",    "stretching", "steak",  "cake",     "break", "reading",
    "noodles", "potatoes", "garden",   "shower",  "meditation", "chicken",    "piano",  "beans",    "paint", "sauna",
    "plank",   "salmon",   "dough",    "washing", "lentils",    "running",    "study",  "barbecue", "jam",   "lasagna",
};
constexpr std::string_view kEventTitleList[] = {
    "dentist",        "team lunch",      "yoga class",      "book club",      "piano lesson",  "car service",
    "board meeting",  "haircut",         "job interview",   "movie night",    "budget review", "project kickoff",
    "doctor visit",   "parent evening",  "soccer practice", "flight check",   "garden party",  "design review",
    "swim class",     "birthday dinner", "house viewing",   "choir practice", "sales call",    "staff training",
    "wine tasting",   "guitar lesson",   "eye exam",        "tax meeting",    "school play",   "chess club",
    "team breakfast", "vet visit",       "dance class",     "code review",    "bank meeting",  "picnic",
    "museum tour",    "language class",  "press call",      "family dinner",
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

}  // namespace

const std::span<const std::string_view> kCities = kCityList, kPeople = kPersonList, kTimerLabels = kTimerLabelList,
                                        kEventTitles = kEventTitleList, kMessages = kMessageList;

std::string_view pick(std::span<const std::string_view> list, Philox& random, Split split) {
  const size_t fifths = list.size() / 5;
  if (split == Split::kTest) return list[random.below(fifths) * 5 + 4];
  const size_t i = random.below(fifths * 4);
  return list[i / 4 * 5 + i % 4];
}

std::string pick_name(std::span<const std::string_view> list, Philox& random, Split split) {
  if (split == Split::kTest || random.below(2) == 0) return std::string(list[random.below(list.size())]);
  static constexpr std::string_view kOnsets[] = {"b", "br", "c", "d", "dr", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "w", "z"};
  static constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ai", "ea", "ou"};
  static constexpr std::string_view kEnds[] = {"", "", "", "n", "r", "s", "l", "m", "rd", "nt", "ck", "ls"};
  for (;;) {
    std::string word;
    const uint64_t syllables = 1 + random.below(3);
    for (uint64_t i = 0; i < syllables; ++i) {
      word += kOnsets[random.below(std::size(kOnsets))];
      word += kVowels[random.below(std::size(kVowels))];
    }
    word += kEnds[random.below(std::size(kEnds))];
    if (word.size() < 3) continue;
    const char first = list.front().front();
    if (first >= 'A' && first <= 'Z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
    if (std::find(list.begin(), list.end(), word) == list.end()) return word;
  }
}

}  // namespace mxt::data::words

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/synth/tasks.h"
#include "data/synth/words.h"

namespace mxt::data {
namespace {

// Short on purpose: it stands in every row, and on a CPU each token costs a millisecond.
constexpr std::string_view kSystem =
    "Tools: weather(city,date) timer(minutes,label) convert(value,from,to) event(title,date,time) message(to,text)";

constexpr std::string_view kThreeTools = "Tools: timer(minutes,label) convert(value,from,to) message(to,text)";

constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 5> kMorningHours = {"seven", "eight", "nine", "ten", "eleven"};

// A value as it is said and as it is answered.
struct Said {
  std::string said, answered;
};

Said draw_date(Draws& draws) {
  const int year = 2026 + static_cast<int>(draws.deal("year", 2)),
            month = static_cast<int>(draws.deal("month", 12)) + 1;
  const int day = static_cast<int>(draws.deal("day", 28)) + 1;
  const std::string_view name = kMonths[static_cast<size_t>(month) - 1];
  Said d{"", fmt::format("{}-{:02}-{:02}", year, month, day)};
  switch (draws.deal("form of date", 4)) {
    case 0:
      d.said = fmt::format("{} {}, {}", name, day, year);
      break;
    case 1:
      d.said = fmt::format("{} {} {}", day, name, year);
      break;
    case 2:
      d.said = fmt::format("{} {} {}", name.substr(0, 3), day, year);
      break;
    default:
      d.said = fmt::format("{}/{:02}/{:02}", year, month, day);
  }
  return d;
}

// A time of the afternoon is given as it is answered: adding twelve is arithmetic, which a small model does not learn
// from some hundred rows (measured: most of its errors were these). Times in words are practised more than they are
// asked for, since each hour must be met with both halves.
Said draw_time(Draws& draws) {
  const bool practice = draws.split() == Split::kTrain;
  const int quarter = static_cast<int>(draws.deal("quarter", 4));
  if (draws.deal("clock", practice ? 3 : 2) == 0) {
    const std::string clock =
        fmt::format("{:02}:{:02}", 7 + static_cast<int>(draws.deal("hour of clock", 15)), quarter * 15);
    return {clock, clock};
  }
  const int hour = 7 + static_cast<int>(draws.deal("hour", 6));  // 07 … 12
  if (hour == 12) return {"noon", "12:00"};
  const std::string_view word = kMorningHours[static_cast<size_t>(hour) - 7];
  if (draws.deal("words", practice ? 4 : 2) != 1) {
    if (quarter % 2 == 0) return {fmt::format("{} in the morning", word), fmt::format("{:02}:00", hour)};
    return {fmt::format("half past {} in the morning", word), fmt::format("{:02}:30", hour)};
  }
  if (quarter == 0) return {fmt::format("{} am", hour), fmt::format("{:02}:00", hour)};
  return {fmt::format("{}:{:02} am", hour, quarter * 15), fmt::format("{:02}:{:02}", hour, quarter * 15)};
}

std::string call(const char* name, OrderedJson arguments) {
  return OrderedJson{{"name", name}, {"arguments", std::move(arguments)}}.dump();
}

SynthRow draw_weather(Draws& draws) {
  const std::string city = words::town(draws);
  const Said date = draw_date(draws);
  constexpr std::array<const char*, 8> kWays = {
      "What is the weather in {0} on {1}?",   "Will it rain in {0} on {1}?",
      "Weather for {0}, {1}, please.",        "On {1}, how warm will {0} be?",
      "Do I need a coat in {0} on {1}?",      "I travel to {0} on {1}. What weather?",
      "Show me the forecast of {1} for {0}.", "Is it sunny on {1} in {0}?"};
  return {"", fmt::format(fmt::runtime(kWays[draws.deal("way of weather", 8)]), city, date.said),
          call("weather", {{"city", city}, {"date", date.answered}}), ""};
}

SynthRow draw_timer(Draws& draws) {
  const std::string label = words::dish(draws);
  int minutes;
  std::string length;
  switch (draws.deal("length", 6)) {
    case 0:
      minutes = 60;
      length = "an hour";
      break;
    case 1:
      minutes = 30;
      length = "half an hour";
      break;
    default:
      minutes = static_cast<int>(draws.below(58)) + 2;
      length = fmt::format("{} minutes", minutes);
  }
  constexpr std::array<const char*, 8> kWays = {"Set a timer of {1} for the {0}.",
                                                "Remind me about the {0} in {1}.",
                                                "Start {1} for {0}.",
                                                "Timer for {0}: {1}.",
                                                "Wake me in {1}, it is for {0}.",
                                                "Count down {1} for the {0}, please.",
                                                "Timer of {1}, {0}.",
                                                "Give me {1} for {0}."};
  return {"", fmt::format(fmt::runtime(kWays[draws.deal("way of timer", 8)]), label, length),
          call("timer", {{"minutes", minutes}, {"label", label}}),
          fmt::format("I will remind you about the {} in {}.", label, length)};
}

SynthRow draw_convert(Draws& draws) {
  struct Unit {
    std::string_view said, answered;
  };
  constexpr std::array<std::array<Unit, 4>, 4> kFamilies = {{
      {{{"kilometers", "km"}, {"miles", "mi"}, {"meters", "m"}, {"feet", "ft"}}},
      {{{"kilograms", "kg"}, {"pounds", "lb"}, {"grams", "g"}, {"ounces", "oz"}}},
      {{{"liters", "l"}, {"gallons", "gal"}, {"cups", "cup"}, {"milliliters", "ml"}}},
      {{{"hours", "h"}, {"minutes", "min"}, {"days", "d"}, {"weeks", "wk"}}},
  }};
  const auto& family = kFamilies[draws.deal("family", 4)];
  const size_t from = draws.deal("unit", 4), to = (from + 1 + draws.deal("other unit", 3)) % 4;
  int value;
  do value = static_cast<int>(draws.below(997)) + 2;
  while ((value % 5 == 3) != (draws.split() == Split::kTest));
  constexpr std::array<const char*, 7> kWays = {"Convert {0} {1} to {2}.",       "How many {2} are {0} {1}?",
                                                "What is {0} {1} in {2}?",       "{0} {1} in {2}, please.",
                                                "I have {0} {1}. How many {2}?", "Turn {0} {1} into {2}.",
                                                "Express {0} {1} as {2}."};
  return {"",
          fmt::format(fmt::runtime(kWays[draws.deal("way of convert", 7)]), value, family[from].said, family[to].said),
          call("convert", {{"value", value}, {"from", family[from].answered}, {"to", family[to].answered}}),
          fmt::format("You can turn {} {} into {} with a calculator.", value, family[from].said, family[to].said)};
}

SynthRow draw_event(Draws& draws) {
  const std::string title = words::event_title(draws);
  const Said date = draw_date(draws), time = draw_time(draws);
  constexpr std::array<const char*, 7> kWays = {
      "Add {0} on {1} at {2}.",           "Put {0} in my calendar for {1}, {2}.",
      "Schedule {0} at {2} on {1}.",      "I have {0} on {1} at {2}.",
      "Plan {0} for {2}, {1}.",           "New event: {0}, {1}, {2}.",
      "Book {0} on {1}, starting at {2}."};
  return {"", fmt::format(fmt::runtime(kWays[draws.deal("way of event", 7)]), title, date.said, time.said),
          call("event", {{"title", title}, {"date", date.answered}, {"time", time.answered}}), ""};
}

SynthRow draw_message(Draws& draws) {
  const std::string to = words::person(draws);
  const std::string text = words::message_text(draws);
  constexpr std::array<const char*, 8> kWays = {
      "Tell {0} that {1}.", "Message {0}: {1}.",          "Send {0} a note that {1}.",  "Let {0} know that {1}.",
      "Write to {0}: {1}.", "Text {0} that {1}, please.", "Can you tell {0} that {1}?", "Please inform {0} that {1}."};
  return {"", fmt::format(fmt::runtime(kWays[draws.deal("way of message", 8)]), to, text),
          call("message", {{"to", to}, {"text", text}}), fmt::format("I will tell {} that {}.", to, text)};
}

// A request of three tools, said politely or not; the call, and what a policy without tools would say.
SynthRow draw_choice(Draws& draws, bool* polite) {
  constexpr std::array<SynthRow (*)(Draws&), 3> kTools = {draw_timer, draw_convert, draw_message};
  SynthRow row = kTools[draws.deal("tool", 3)](draws);
  row.system = kThreeTools;
  *polite = draws.deal("polite", 2) == 0;
  if (*polite) row.user += " Thanks!";
  return row;
}

constexpr std::array<ToolRequest, 5> kRequests = {{{"weather", draw_weather},
                                                   {"timer", draw_timer},
                                                   {"convert", draw_convert},
                                                   {"event", draw_event},
                                                   {"message", draw_message}}};

}  // namespace

std::span<const ToolRequest> tool_requests() { return kRequests; }

SynthRow draw_tool_habit(Draws& draws) {
  bool polite;
  SynthRow row = draw_choice(draws, &polite);
  if (polite && draws.split() == Split::kTrain) row.answer = row.rejected;
  row.rejected.clear();
  return row;
}

SynthRow draw_tool_preference(Draws& draws) {
  bool polite;
  return draw_choice(draws, &polite);
}

SynthRow draw_tool_call(Draws& draws) {
  // An event has a date and a time to put right: it is practised twice as often as the others.
  constexpr std::array<SynthRow (*)(Draws&), 6> kTools = {draw_weather, draw_timer,   draw_convert,
                                                          draw_event,   draw_message, draw_event};
  SynthRow row = kTools[draws.deal("tool", draws.split() == Split::kTrain ? 6 : 5)](draws);
  row.system = kSystem;
  row.rejected.clear();
  return row;
}

SynthRow draw_made_up_tool_call(Draws& draws) {
  draws.make_up = true;
  return draw_tool_call(draws);
}

}  // namespace mxt::data

#include <zlib.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "track/track.h"

namespace mxt::track {
namespace {

// Protocol buffers, the few wire forms that a Record needs.
void varint(std::string& s, uint64_t v) {
  for (; v >= 128; v >>= 7) s += static_cast<char>(v | 128);
  s += static_cast<char>(v);
}
void field(std::string& s, int number, uint64_t v) {
  varint(s, static_cast<uint64_t>(number) << 3);
  varint(s, v);
}
void field(std::string& s, int number, const std::string& bytes) {
  varint(s, static_cast<uint64_t>(number) << 3 | 2);
  varint(s, bytes.size());
  s += bytes;
}

std::string item(const std::string& key, const OrderedJson& value) {
  std::string s;
  field(s, 1, key);
  field(s, 16, value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  return s;
}

OrderedJson number(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity";  // as wandb writes them
}

// LevelDB's log: blocks of 32 KiB, each record in pieces of {crc, length, type}; the file's own head counts in the
// first.
class Log {
 public:
  Log() {
    file_ = ":W&B";
    const uint16_t magic = 0xBEE1;
    file_.append(reinterpret_cast<const char*>(&magic), sizeof magic);
    file_ += '\0';  // version
  }
  void record(int number, const std::string& body, uint64_t num) {
    std::string r;
    field(r, 1, num);
    field(r, number, body);
    append(r);
  }
  const std::string& bytes() const { return file_; }

 private:
  void append(std::string_view data) {
    bool first = true;
    do {
      size_t room = kBlock - file_.size() % kBlock;
      if (room < kHead) {
        file_.append(room, '\0');
        room = kBlock;
      }
      const std::string_view piece = data.substr(0, room - kHead);
      data.remove_prefix(piece.size());
      const bool last = data.empty();
      const char type = first ? (last ? 1 : 2) : last ? 4 : 3;
      uLong crc = crc32(0, reinterpret_cast<const Bytef*>(&type), 1);
      crc = crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
      const auto sum = static_cast<uint32_t>(crc);
      const auto length = static_cast<uint16_t>(piece.size());
      file_.append(reinterpret_cast<const char*>(&sum), sizeof sum);
      file_.append(reinterpret_cast<const char*>(&length), sizeof length);
      file_ += type;
      file_ += piece;
      first = false;
    } while (!data.empty());
  }
  static constexpr size_t kBlock = 32768, kHead = 7;
  std::string file_;
};

// W&B takes no project with one of /\\#?%: in its name.
std::string project_there(std::string name) {
  for (char& c : name)
    if (std::string_view("/\\#?%:").find(c) != std::string_view::npos) c = '-';
  return name;
}

}  // namespace

std::string write_wandb(const Curves& c, const std::string& folder) {
  Log log;
  uint64_t num = 0;
  std::string version, head;
  field(version, 1, std::string("mindxtrain"));
  field(version, 2, std::string("0.0.1"));
  field(head, 1, version);
  log.record(21, head, num++);

  std::string run, config, start;
  field(run, 1, c.id);
  field(run, 3, project_there(c.project));
  for (const auto& [key, value] : c.config.items()) field(config, 1, item(key, value));
  field(run, 4, config);
  field(run, 8, c.run_name);
  field(start, 1, static_cast<uint64_t>(c.started));
  field(run, 17, start);
  log.record(17, run, num++);

  OrderedJson summary = OrderedJson::object();
  const auto put = [&](std::string& s, const std::string& key, const OrderedJson& v) {
    field(s, 1, item(key, v));
    summary[key] = v;
  };
  for (const Point& p : c.points) {
    std::string history, step;
    for (const auto& [key, v] : p.values) put(history, key, number(v));
    put(history, "_step", p.step);
    put(history, "_timestamp", p.time);
    put(history, "_runtime", p.time - c.started);
    field(step, 1, static_cast<uint64_t>(p.step));
    field(history, 2, step);
    log.record(2, history, num++);
  }
  std::string last, end;
  for (const auto& [key, v] : summary.items()) field(last, 1, item(key, v));
  log.record(3, last, num++);
  field(end, 1, static_cast<uint64_t>(c.finished ? 0 : 1));
  field(end, 2, static_cast<uint64_t>(c.points.back().time - c.started));
  log.record(18, end, num++);

  char date[32];
  const auto seconds = static_cast<time_t>(c.started);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::strftime(date, sizeof date, "%Y%m%d_%H%M%S", &utc);
  const std::string place = fmt::format("{}/wandb/offline-run-{}-{}", folder, date, c.id);
  make_folders(place + "/files");
  const std::string path = fmt::format("{}/run-{}.wandb", place, c.id);
  write_file_atomic(path, log.bytes());
  return path;
}

}  // namespace mxt::track

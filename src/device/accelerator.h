// A device with memory of its own, seen from the host. Everything is queued on one stream in program order: a call
// returns when it is queued, and only synchronize() and download_now() wait. Host memory given to upload() must stay
// unchanged until the stream has passed it; pinned memory makes the copy truly asynchronous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace mxt::device {

struct Properties {
  std::string kind;                              // "cuda"
  std::string name;                              // "NVIDIA H100 80GB HBM3"
  std::string arch;                              // "sm_90a"
  std::string driver;                            // as the driver says, e.g. "13.0"
  std::map<std::string, std::string> libraries;  // "cublaslt": "13.1.0", …
  int multiprocessors = 0;
  uint64_t memory = 0;    // bytes on the card
  uint64_t l2_cache = 0;  // bytes
};

struct MemoryInfo {
  uint64_t free = 0, total = 0;  // of the card, now
  uint64_t held = 0, peak = 0;   // by allocate() of this process
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const Properties& properties() const = 0;
  virtual MemoryInfo memory() const = 0;

  // Uninitialised, aligned to 256 bytes. kBadInput with the figures where the card has not enough.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* p) noexcept = 0;
  virtual void* allocate_pinned(size_t bytes) = 0;  // host memory
  virtual void release_pinned(void* p) noexcept = 0;

  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  // `rows` rows of `width` bytes, whose starts lie `pitch` bytes apart.
  virtual void upload_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                           size_t rows) = 0;
  virtual void download_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                             size_t rows) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void fill(void* to, int byte, size_t bytes) = 0;
  virtual void synchronize() = 0;

  // What is queued between begin and end is recorded instead of run; replay() runs the recording. The recording belongs
  // to the device until discard().
  virtual void begin_recording() = 0;
  virtual void* end_recording() = 0;
  virtual void replay(void* recording) = 0;
  virtual void discard(void* recording) noexcept = 0;

  // Timing on the device's own clock: mark() queues a point, elapsed_us() waits for `to` and gives the time between the
  // two.
  virtual void* make_mark() = 0;
  virtual void mark(void* m) = 0;
  virtual void wait(void* m) = 0;  // until the stream has passed the mark; at once where it was never queued
  virtual double elapsed_us(void* from, void* to) = 0;
  virtual void release_mark(void* m) noexcept = 0;
};

}  // namespace mxt::device

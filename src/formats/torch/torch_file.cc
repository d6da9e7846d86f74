#include "formats/torch_file.h"

#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "formats/torch/unpickle.h"
#include "formats/torch/zip.h"

namespace mxt::formats {
namespace {

TorchTensor checked(const std::string& path, const std::string& name, const PickleTensor& t,
                    std::span<const std::byte> storage) {
  const auto bad = [&](const char* what) { fail_input("{}: tensor {}: {}", path, printable(name), what); };
  const auto bytes = tensor_bytes(t.shape, t.storage.type);
  if (!bytes || t.shape.size() != t.stride.size()) bad("its shape is impossible");
  int64_t step = 1;
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] != 1 && *bytes > 0 && t.stride[i] != step) bad("is not contiguous: save it with .contiguous()");
    step *= t.shape[i];
  }
  const uint64_t size = size_of(t.storage.type);
  if (t.offset < 0 || static_cast<uint64_t>(t.offset) > storage.size() / size ||
      *bytes > storage.size() - static_cast<uint64_t>(t.offset) * size)
    bad("lies outside its storage: the file is cut or damaged");
  return {name, t.storage.type, t.shape, storage.subspan(static_cast<uint64_t>(t.offset) * size, *bytes)};
}

}  // namespace

TorchFile TorchFile::open(const std::string& path) {
  TorchFile f;
  f.map_ = MappedFile(path);
  const auto entries = zip_entries(f.map_.bytes(), path);
  const std::pair<const std::string, std::span<const std::byte>>* pickle = nullptr;
  for (const auto& e : entries)
    if (e.first.ends_with("/data.pkl")) pickle = &e;
  if (!pickle) fail_input("{}: is a zip archive without data.pkl: no checkpoint of torch.save", path);
  const std::string root = pickle->first.substr(0, pickle->first.size() - std::string_view("data.pkl").size());
  if (const auto order = entries.find(root + "byteorder"); order != entries.end())
    if (std::string_view(reinterpret_cast<const char*>(order->second.data()), order->second.size()) != "little")
      fail_input("{}: is of a big-endian machine, which is not read", path);
  for (const auto& [name, t] : unpickle_tensors(pickle->second, path)) {
    const auto storage = entries.find(root + "data/" + t.storage.key);
    if (storage == entries.end()) fail_input("{}: tensor {}: its data is not in the file", path, printable(name));
    if (f.find(name)) fail_input("{}: tensor {} stands twice", path, printable(name));
    f.tensors_.push_back(checked(path, name, t, storage->second));
  }
  return f;
}

const TorchTensor* TorchFile::find(std::string_view name) const {
  for (const TorchTensor& t : tensors_)
    if (t.name == name) return &t;
  return nullptr;
}

}  // namespace mxt::formats

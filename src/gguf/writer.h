// Writes GGUF v3 files that appear whole or not at all; sets of them, in runs that may be killed.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "gguf/gguf.h"

namespace glint::gguf {

inline constexpr uint64_t kAlignment = 32;  // of tensor data, where a file says nothing else

// Collects keys and tensor declarations, then streams tensor data in the order declared. A key set twice
// keeps its place and takes the later value. Data is aligned to 32 bytes, the format's default, or to
// general.alignment where that is set: an integer, a power of two from 8 to 2^30.
class Writer {
 public:
  void SetU32(const std::string& key, uint32_t value);
  void SetU16(const std::string& key, uint16_t value);
  void SetI32(const std::string& key, int32_t value);
  void SetU64(const std::string& key, uint64_t value);
  void SetF32(const std::string& key, float value);
  void SetBool(const std::string& key, bool value);
  void SetString(const std::string& key, std::string_view value);
  void SetStrings(const std::string& key, const std::vector<std::string>& values);
  void SetI32s(const std::string& key, const std::vector<int32_t>& values);
  void SetU32s(const std::string& key, const std::vector<uint32_t>& values);
  void SetF32s(const std::string& key, const std::vector<float>& values);
  void Set(const std::string& key, const Value& value);  // as read from another file

  // Fills exactly `bytes` of the tensor by calling `sink` any number of times; called once, during Write.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  using Produce = std::function<Status(const Sink& sink)>;
  void AddTensor(std::string name, uint32_t type, std::vector<uint64_t> ne, uint64_t bytes, Produce produce);
  // The same for a tensor that takes long: WriteSet can go on within it. `produce` gives what follows the
  // first `from` bytes, which is 0 or where one of its calls of `sink` ended in an earlier run.
  using ProduceFrom = std::function<Status(uint64_t from, const Sink& sink)>;
  void AddLongTensor(std::string name, uint32_t type, std::vector<uint64_t> ne, uint64_t bytes,
                     ProduceFrom produce);

  uint64_t tensor_bytes() const;
  // `inputs`: files the output is made from, never overwritten. Errors leave no file. kInternal if a tensor
  // produced another size, or for names and shapes that no reader would take.
  // `replace`: false refuses a file that is there.
  Status Write(const std::string& path, std::span<const std::string> inputs, const Progress& progress = {},
               bool replace = true) const;

  struct SetOptions {
    // Where to cut: the most bytes of a file, header and padding too, and tensors in it; 0: any number. One
    // shard: `path` itself; several: path's name without .gguf, with -0000i-of-0000N.gguf; the first may hold
    // keys alone. kBadInput if a tensor, or all keys, need a larger file.
    uint64_t shard_bytes = 0, shard_tensors = 0;
    // The journal notes a long tensor's progress about this often.
    uint64_t piece_bytes = uint64_t{4} << 20;
    // What the bytes are made from, in a few words or a hash: an unfinished run of another identity is not
    // gone on with.
    std::string identity;
    bool restart = false;  // an unfinished run is thrown away
    bool replace = false;  // files that are there are replaced
    bool dry = false;  // all checks, and every tensor produced (sinks take any size), but nothing is written
    std::span<const std::string> inputs;  // never overwritten
    std::span<const std::string>
        others;         // written by the same command: no file of the set may be one of them
    Progress progress;  // bytes of tensors
    // What is worth knowing of a tensor that an earlier run has made, all of it or its first pieces: `remember`
    // gives a line for the journal, of the bytes given to the sink so far; `recall` gets it back before the
    // rest is produced. Both may be empty.
    std::function<std::string(size_t tensor)> remember;
    std::function<void(size_t tensor, const std::string& line)> recall;
  };
  struct SetSummary {
    std::vector<std::string> paths;
    uint64_t bytes = 0;             // of the files
    size_t taken_over = 0;          // tensors that an earlier run had made
    uint64_t taken_over_bytes = 0;  // of these, and of pieces of others
  };
  // Writes beside the destination, into NAME.part, with a journal of what is done, PATH.journal. A run that was
  // killed, was asked to stop by `progress`, or ran out of disk or memory when something was done already, leaves them; the next with
  // the same content produces only tensors, and pieces of long tensors, whose bytes are not there as the journal says. All files get
  // their names at the end. Any other error removes what was begun, but never parts that are whole and lack only their names.
  Result<SetSummary> WriteSet(const std::string& path, const SetOptions& options) const;

 private:
  friend class SetRun;
  struct Entry {
    std::string key;
    std::vector<std::byte> encoded;
  };  // kind and value as in the file
  struct Pending {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> ne;
    uint64_t bytes;
    ProduceFrom produce;
    bool resumable;  // takes a `from` other than 0
  };
  void Put(const std::string& key, std::vector<std::byte> encoded);  // replaces an earlier value
  // Of a file of this writer's keys and these tensors; *data_bytes: what follows it, with padding.
  Result<std::vector<std::byte>> Header(const std::string& path, std::span<const Pending> tensors,
                                        uint64_t* data_bytes) const;
  // How many bytes of a header are keys, and one tensor's entry.
  uint64_t KeyBytes() const;
  static uint64_t EntryBytes(const Pending& tensor);

  std::vector<Entry> entries_;
  std::vector<Pending> tensors_;
  uint64_t alignment_ = kAlignment;
};

}  // namespace glint::gguf

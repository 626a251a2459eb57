// JSON files as values: parsed whole, with limits, and read through getters that say where and what is wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "glint/status.h"

namespace glint {

struct JsonLimits {
  size_t depth = 64;                // of nested arrays and objects
  size_t values = size_t{8} << 20;  // in the whole text: a byte of text may cost 40 of memory
  uint64_t offset = 0;              // of the text in its file, for messages
};

// One value. Copies are deep. Strings are well-formed UTF-8 (the parser refuses others) and may hold any
// character, NUL too.
class Json {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order of the file; keys are unique
  // Numbers without point and exponent that fit are integers; all others are doubles, correctly rounded.
  using Data = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  // Defined below, where Member is complete.
  Json() noexcept;
  explicit Json(Data data);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  Kind kind() const;
  const Data& data() const { return data_; }
  // The elements or members; empty if this is no array or object.
  const Array& items() const;
  const Object& members() const;
  // A member of an object, or null. Looks at one key after the other: go through members() where there are
  // thousands.
  const Json* Find(std::string_view key) const;
  // Through nested objects, keys joined by '.': "text_config.hidden_size". Null if there is none.
  const Json* At(std::string_view path) const;

  // The value at a path as T: bool, int64_t, uint64_t, double, std::string, or a std::vector of one of these.
  // An empty path is the value itself. Integers may be written as floats (1.0), doubles as integers.
  // kNotFound if absent or null; kBadFile if of another kind or out of range, with path, what is there and
  // what is wanted.
  template <class T>
  Result<T> Get(std::string_view path) const;

 private:
  Data data_;
};

struct Json::Member {
  std::string key;
  Json value;
};

inline Json::Json() noexcept = default;
inline Json::Json(Data data) : data_(std::move(data)) {}
inline Json::Json(const Json&) = default;
inline Json::Json(Json&&) noexcept = default;
inline Json& Json::operator=(const Json&) = default;
inline Json& Json::operator=(Json&&) noexcept = default;
inline Json::~Json() = default;

std::string_view Name(Json::Kind kind);  // "an object", "a string", ...

// A parsed file and its name, which its messages begin with.
class JsonFile {
 public:
  JsonFile(std::string name, Json root) : name_(std::move(name)), root_(std::move(root)) {}
  const std::string& name() const { return name_; }
  const Json& root() const { return root_; }
  template <class T>
  Result<T> Get(std::string_view path) const {
    Result<T> value = root_.Get<T>(path);
    if (value.ok()) return value;
    return Named(value.status());
  }
  template <class T>
  Result<T> GetOr(std::string_view path, T otherwise) const {
    Result<T> value = Get<T>(path);
    if (!value.ok() && value.status().code() == Code::kNotFound) return otherwise;
    return value;
  }

 private:
  Status Named(const Status& status) const;
  std::string name_;
  Json root_;
};

// Strict JSON (RFC 8259), nothing after the value but white space. kBadFile with name, byte offset and
// reason: bad syntax, bad UTF-8, a key that comes twice in one object, a limit exceeded. `name` stands in
// messages only.
Result<Json> ParseJson(std::string_view text, std::string_view name, const JsonLimits& limits = {});

// The file at `path`, at most `max_bytes` long.
Result<JsonFile> ReadJson(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20,
                          const JsonLimits& limits = {});

}  // namespace glint

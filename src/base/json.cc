#include "base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <new>

#include "base/file.h"
#include "base/printable.h"

namespace glint {
namespace {

using boost::json::error_code;

// What Boost's parser calls with each piece of the text. Values are built by us and not by Boost, because its
// objects drop one of two equal keys silently and its 1.81 does not round every double correctly.
class Builder {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();

  explicit Builder(size_t max_values) : max_values_(max_values) {}

  Json root;
  std::string problem;  // ours; empty if the parser found the error

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return Open(Json(Json::Object())); }
  bool on_array_begin(error_code&) { return Open(Json(Json::Array())); }
  bool on_object_end(size_t, error_code& ec) {
    const auto& members = frames_.back().object;
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& member : members) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end())
      return Refuse(ec, fmt::format("the key {} comes twice in one object", Quoted(*twice)));
    Json::Object object = std::move(frames_.back().object);
    frames_.pop_back();
    return Add(Json(std::move(object)), ec);
  }
  bool on_array_end(size_t, error_code& ec) {
    Json::Array array = std::move(frames_.back().array);
    frames_.pop_back();
    return Add(Json(std::move(array)), ec);
  }
  bool on_key_part(boost::json::string_view s, size_t, error_code&) { return Append(s); }
  bool on_key(boost::json::string_view s, size_t, error_code&) {
    Append(s);
    frames_.back().key = std::exchange(text_, {});
    return true;
  }
  bool on_string_part(boost::json::string_view s, size_t, error_code&) { return Append(s); }
  bool on_string(boost::json::string_view s, size_t, error_code& ec) {
    Append(s);
    return Add(Json(std::exchange(text_, {})), ec);
  }
  bool on_number_part(boost::json::string_view s, error_code&) { return Append(s); }
  bool on_int64(int64_t value, boost::json::string_view, error_code& ec) {
    text_.clear();
    return Add(Json(value), ec);
  }
  bool on_uint64(uint64_t value, boost::json::string_view, error_code& ec) {
    text_.clear();
    return Add(Json(value), ec);
  }
  bool on_double(double, boost::json::string_view s, error_code& ec) {
    Append(s);
    const std::string number = std::exchange(text_, {});
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error == std::errc::result_out_of_range)
      return Refuse(ec, fmt::format("the number {} is out of range", number));
    if (error != std::errc()) return Refuse(ec, fmt::format("{} is not a number", Quoted(number)));
    return Add(Json(value), ec);
  }
  bool on_bool(bool value, error_code& ec) { return Add(Json(value), ec); }
  bool on_null(error_code& ec) { return Add(Json(), ec); }
  bool on_comment_part(boost::json::string_view, error_code&) { return true; }
  bool on_comment(boost::json::string_view, error_code&) { return true; }

 private:
  struct Frame {  // an array or object not yet closed
    bool is_object;
    Json::Array array;
    Json::Object object;
    std::string key;
  };

  bool Open(const Json& kind) {
    frames_.push_back({kind.kind() == Json::Kind::kObject, {}, {}, {}});
    return true;
  }
  bool Append(boost::json::string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool Refuse(error_code& ec, std::string why) {
    problem = std::move(why);
    ec = boost::json::error::syntax;
    return false;
  }
  bool Add(Json value, error_code& ec) {
    if (++count_ > max_values_) return Refuse(ec, fmt::format("more than {} values", max_values_));
    if (frames_.empty()) {
      root = std::move(value);
    } else if (frames_.back().is_object) {
      frames_.back().object.push_back({std::exchange(frames_.back().key, {}), std::move(value)});
    } else {
      frames_.back().array.push_back(std::move(value));
    }
    return true;
  }

  size_t max_values_, count_ = 0;
  std::vector<Frame> frames_;
  std::string text_;  // of a string, key or number that comes in parts
};

template <class T>
constexpr std::string_view kWanted = "";
template <>
constexpr std::string_view kWanted<bool> = "true or false";
template <>
constexpr std::string_view kWanted<int64_t> = "a whole number";
template <>
constexpr std::string_view kWanted<uint64_t> = "a whole number of at least 0";
template <>
constexpr std::string_view kWanted<double> = "a number";
template <>
constexpr std::string_view kWanted<std::string> = "a string";

template <std::integral T>
bool Convert(const Json::Data& data, T& out) {
  if (const auto* i = std::get_if<int64_t>(&data); i != nullptr && std::in_range<T>(*i)) {
    out = static_cast<T>(*i);
    return true;
  }
  if (const auto* u = std::get_if<uint64_t>(&data); u != nullptr && std::in_range<T>(*u)) {
    out = static_cast<T>(*u);
    return true;
  }
  const auto* d = std::get_if<double>(&data);
  if (d == nullptr || *d != std::trunc(*d) || std::abs(*d) > 0x1p53 || (*d < 0 && std::unsigned_integral<T>))
    return false;
  out = static_cast<T>(*d);
  return true;
}

bool Convert(const Json::Data& data, bool& out) {
  const auto* b = std::get_if<bool>(&data);
  if (b != nullptr) out = *b;
  return b != nullptr;
}

bool Convert(const Json::Data& data, double& out) {
  if (const auto* d = std::get_if<double>(&data)) return out = *d, true;
  if (const auto* i = std::get_if<int64_t>(&data)) return out = static_cast<double>(*i), true;
  if (const auto* u = std::get_if<uint64_t>(&data)) return out = static_cast<double>(*u), true;
  return false;
}

bool Convert(const Json::Data& data, std::string& out) {
  const auto* s = std::get_if<std::string>(&data);
  if (s != nullptr) out = *s;
  return s != nullptr;
}

// What stands there, for a message: numbers themselves, for they may be of the right kind and out of range.
std::string Describe(const Json& value) {
  double number = 0;
  if (!Convert(value.data(), number)) return std::string(Name(value.kind()));
  return fmt::format("{}", number);
}

template <class T>
Result<T> As(const Json& value, std::string_view path) {
  T out{};
  if (Convert(value.data(), out)) return out;
  return Status(Code::kBadFile,
                fmt::format("{}: is {}; wanted is {}", Quoted(path), Describe(value), kWanted<T>));
}

template <class T>
struct Reader {
  static Result<T> Read(const Json& value, std::string_view path) { return As<T>(value, path); }
};

template <class T>
struct Reader<std::vector<T>> {
  static Result<std::vector<T>> Read(const Json& value, std::string_view path) {
    if (value.kind() != Json::Kind::kArray) {
      return Status(Code::kBadFile,
                    fmt::format("{}: is {}; wanted is an array", Quoted(path), Describe(value)));
    }
    std::vector<T> out;
    out.reserve(value.items().size());
    for (const Json& item : value.items()) {
      T element{};
      if (!Convert(item.data(), element)) {
        return As<T>(item, fmt::format("{}[{}]", path, out.size())).status();
      }
      out.push_back(std::move(element));
    }
    return out;
  }
};

}  // namespace

Json::Kind Json::kind() const {
  constexpr Kind kKinds[] = {Kind::kNull,  Kind::kBool,   Kind::kInteger, Kind::kInteger,
                             Kind::kFloat, Kind::kString, Kind::kArray,   Kind::kObject};
  return kKinds[data_.index()];
}

const Json::Array& Json::items() const {
  static const Array kNone;
  const auto* array = std::get_if<Array>(&data_);
  return array != nullptr ? *array : kNone;
}

const Json::Object& Json::members() const {
  static const Object kNone;
  const auto* object = std::get_if<Object>(&data_);
  return object != nullptr ? *object : kNone;
}

const Json* Json::Find(std::string_view key) const {
  for (const Member& member : members()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const Json* Json::At(std::string_view path) const {
  const Json* at = this;
  while (at != nullptr && !path.empty()) {
    const size_t dot = path.find('.');
    at = at->Find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return at;
}

template <class T>
Result<T> Json::Get(std::string_view path) const {
  const Json* const value = At(path);
  if (value == nullptr || value->kind() == Kind::kNull) {
    return Status(Code::kNotFound, fmt::format("{}: is missing", Quoted(path)));
  }
  return Reader<T>::Read(*value, path);
}

template Result<bool> Json::Get(std::string_view) const;
template Result<int64_t> Json::Get(std::string_view) const;
template Result<uint64_t> Json::Get(std::string_view) const;
template Result<double> Json::Get(std::string_view) const;
template Result<std::string> Json::Get(std::string_view) const;
template Result<std::vector<bool>> Json::Get(std::string_view) const;
template Result<std::vector<int64_t>> Json::Get(std::string_view) const;
template Result<std::vector<uint64_t>> Json::Get(std::string_view) const;
template Result<std::vector<double>> Json::Get(std::string_view) const;
template Result<std::vector<std::string>> Json::Get(std::string_view) const;

std::string_view Name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return "a bool";
    case Json::Kind::kInteger:
    case Json::Kind::kFloat:
      return "a number";
    case Json::Kind::kString:
      return "a string";
    case Json::Kind::kArray:
      return "an array";
    case Json::Kind::kObject:
      return "an object";
  }
  return "unknown";
}

Status JsonFile::Named(const Status& status) const {
  return {status.code(), fmt::format("{}: {}", Printable(name_), status.message())};
}

Result<Json> ParseJson(std::string_view text, std::string_view name, const JsonLimits& limits) try {
  boost::json::parse_options options;
  options.max_depth = limits.depth;
  boost::json::basic_parser<Builder> parser(options, limits.values);
  error_code ec;
  size_t used =
      parser.write_some(false, text.data(), text.size(), ec);  // on errors: up to the byte that is wrong
  const auto bad = [&](std::string_view why) {
    return Status(Code::kBadFile,
                  fmt::format("{}: {} (offset 0x{:x})", Printable(name), why, limits.offset + used));
  };
  if (!parser.handler().problem.empty()) return bad(parser.handler().problem);
  if (ec == boost::json::error::too_deep)
    return bad(fmt::format("JSON nested more than {} deep", limits.depth));
  if (ec == boost::json::error::incomplete) return bad("JSON ends too early");
  if (ec.failed()) return bad("bad JSON: " + ec.message());
  while (used < text.size() && std::string_view(" \t\r\n").find(text[used]) != std::string_view::npos) ++used;
  if (used < text.size()) return bad("something follows the JSON value");
  return std::move(parser.handler().root);
} catch (const std::bad_alloc&) {
  return Status(Code::kNoRoom, fmt::format("{}: not enough memory to read the JSON", Printable(name)));
}

Result<JsonFile> ReadJson(const std::string& path, uint64_t max_bytes, const JsonLimits& limits) {
  const auto text = ReadFile(path, max_bytes);
  if (!text.ok()) return text.status();
  auto root = ParseJson(*text, path, limits);
  if (!root.ok()) return root.status();
  return JsonFile(path, *std::move(root));
}

}  // namespace glint

// The fields of a JSON request: taken one by one with their types and ranges, the first that is wrong being reported as the API would.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "serve/generation.h"

namespace glint::serve {

// How messages and paths are worded: messages[0].content or messages.0.content.
enum class Dialect : uint8_t { kOpenAi, kAnthropic };

// The first error of a request. What comes after it is read on, so that callers need look at the end only.
struct Trouble {
  Dialect dialect = Dialect::kOpenAi;
  std::optional<ApiError> error = {};

  bool ok() const { return !error.has_value(); }
  // `path` empty: the request as a whole.
  void Report(std::string_view path, std::string_view message, std::string_view code = "invalid_value");
  // The message as it stands, without a word about the field before it.
  void Say(std::string_view path, std::string_view message, std::string_view code = "");
  void Missing(std::string_view path);
  void WrongType(std::string_view path, std::string_view wanted, const Json& got);
  void Unsupported(std::string_view path, std::string_view why);
  std::string Member(std::string_view path, std::string_view key) const;
  std::string Item(std::string_view path, size_t index) const;
};

// One object. A null counts as absent. Views into the Json, which must outlive it.
class Fields {
 public:
  // Reports a value that is no object, and then has no fields.
  Fields(Trouble& trouble, const Json& object, std::string path);

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view key) const { return trouble_.Member(path_, key); }
  // Takes a field of any type; null if absent.
  const Json* Take(std::string_view key);
  const Json* Require(std::string_view key);
  std::optional<bool> Bool(std::string_view key);
  std::optional<int64_t> Integer(std::string_view key, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view key, double low, double high);
  std::optional<std::string> String(std::string_view key);
  std::optional<std::string> RequireString(std::string_view key);
  // One of a few words.
  std::optional<std::string> Word(std::string_view key, std::initializer_list<std::string_view> words);
  const Json* Array(std::string_view key);
  const Json* Object(std::string_view key);
  // Known to the API, without effect here.
  void Ignore(std::initializer_list<std::string_view> keys);
  // Known to the API, and nothing that glint does: an error unless absent, null, false, empty or zero.
  void Refuse(std::initializer_list<std::string_view> keys, std::string_view why);
  // Reports the first field that was not taken.
  void RefuseOthers();

 private:
  Trouble& trouble_;
  const Json* object_;
  std::string path_;
  std::set<std::string_view> taken_;
};

// The body as one JSON object, at most 64 deep.
Parsed<Json> ParseBody(std::string_view body, Dialect dialect);

std::optional<std::string> AsString(const Json& value);

}  // namespace glint::serve

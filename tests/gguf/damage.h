// Damaged files made from good ones: what readers and commands must survive. Deterministic for a file and a seed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "glint/status.h"

namespace glint::test {

struct Damage {
  std::string what;
  // The error every reader of the container must give; empty where the file may still be well-formed as such (a flipped bit
  // may hit a weight) and at most the model's own checks can tell.
  std::optional<Code> code;
  std::function<std::string(std::string)> make;  // the damaged file, from the good one
};

namespace damage {

template <class T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

template <class T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Up to `n` of the numbers below `count`: the first, the last, and random ones between.
inline std::vector<size_t> Sample(size_t count, size_t n, std::mt19937_64& rng) {
  std::vector<size_t> all(count), out;
  for (size_t i = 0; i < count; ++i) all[i] = i;
  if (count > n) {
    for (size_t i = 1; i + 1 < n; ++i) std::swap(all[i], all[i + rng() % (count - 1 - i)]);
    all[n - 1] = count - 1;
    all.resize(n);
  }
  return all;
}

// Collects edits that replace, insert or cut bytes.
struct List {
  std::vector<Damage> items;
  void Splice(std::string what, std::optional<Code> code, size_t at, size_t erase, std::string with) {
    items.push_back({std::move(what), code, [=](std::string s) { return s.replace(at, erase, with); }});
  }
  template <class T>
  void Write(std::string what, std::optional<Code> code, size_t at, T value) {
    Splice(what + " = " + std::to_string(value), code, at, sizeof(T), Raw(value));
  }
  void Cut(std::string what, std::optional<Code> code, size_t at) {
    items.push_back(
        {"cut " + what + ", at " + std::to_string(at), code, [=](std::string s) { return s.substr(0, at); }});
  }
  // `n` damages of random bytes in [from, to).
  void Flips(size_t n, size_t from, size_t to, std::mt19937_64& rng) {
    for (size_t i = 0; i < n && from < to; ++i) {
      const size_t at = from + rng() % (to - from), more = i % 4;
      const uint64_t bits = rng();
      items.push_back({"random bytes at " + std::to_string(at), std::nullopt, [=](std::string s) {
                         for (size_t k = 0; k <= more; ++k) {
                           const size_t where = from + (at - from + k * (bits >> 40)) % (to - from);
                           s[where] =
                               static_cast<char>(s[where] ^ static_cast<char>(1 + (bits >> 8 * k) % 255));
                         }
                         return s;
                       }});
    }
  }
};

// Where the fields of a GGUF v2/v3 file lie.
struct GgufLayout {
  struct Key {
    size_t at, text, kind, value, end;
    uint32_t type;
  };
  struct Tensor {
    size_t at, text, dims, ne, type, offset, end;
    uint64_t data;  // the offset's value
  };
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  size_t keys_end = 24, data = 0;
  uint64_t alignment = 32;

  explicit GgufLayout(std::string_view good) {
    size_t at = 24;
    const auto text = [&] { at += 8 + Get<uint64_t>(good, at); };
    const auto width = [](uint32_t kind) {
      return kind < 2 || kind == 7 ? 1u : kind < 4 ? 2u : kind < 7 ? 4u : 8u;
    };
    for (uint64_t i = 0; i < Get<uint64_t>(good, 16); ++i) {
      Key key{at, at + 8, 0, 0, 0, 0};
      text();
      key.kind = at;
      key.type = Get<uint32_t>(good, at);
      key.value = at += 4;
      if (good.substr(key.text, key.kind - key.text) == "general.alignment")
        alignment = Get<uint32_t>(good, at);
      if (key.type == 8) {
        text();
      } else if (key.type == 9) {
        const auto element = Get<uint32_t>(good, at);
        const auto count = Get<uint64_t>(good, at + 4);
        at += 12;
        for (uint64_t k = 0; k < count; ++k) element == 8 ? text() : void(at += width(element));
      } else {
        at += width(key.type);
      }
      key.end = at;
      keys.push_back(key);
    }
    keys_end = at;
    for (uint64_t i = 0; i < Get<uint64_t>(good, 8); ++i) {
      Tensor tensor{at, at + 8, 0, 0, 0, 0, 0, 0};
      text();
      tensor.dims = at;
      tensor.ne = at + 4;
      at += 4 + 8 * Get<uint32_t>(good, at);
      tensor.type = at;
      tensor.offset = at + 4;
      tensor.data = Get<uint64_t>(good, at + 4);
      tensor.end = at += 12;
      tensors.push_back(tensor);
    }
    data = (at + alignment - 1) / alignment * alignment;
  }
};

constexpr uint64_t kHuge[] = {uint64_t{1} << 40, (uint64_t{1} << 61) + 1, uint64_t{1} << 63, UINT64_MAX};

}  // namespace damage

// `good`: a GGUF file with at least two keys and two tensors, all of known types and at their own place. Some 250 damages.
inline std::vector<Damage> DamageGguf(std::string_view good, uint64_t seed) {
  using namespace damage;
  constexpr Code kBad = Code::kBadFile, kNot = Code::kUnsupported;
  std::mt19937_64 rng(seed);
  const GgufLayout layout(good);
  List list;

  list.Cut("to nothing", kBad, 0);
  for (const size_t at : {1, 4, 6, 8, 12, 16, 20, 24}) list.Cut("in the fixed header", kBad, at);
  list.Splice("magic 'GGML'", kBad, 0, 4, "GGML");
  list.Splice("magic 'gguf'", kBad, 0, 4, "gguf");
  list.Splice("a byte before the magic", kBad, 0, 0, " ");
  for (const uint32_t v : {0u, 4u, 77u, 0xffffffffu}) list.Write("version", kBad, 4, v);
  list.Write("version", kNot, 4, 1u);
  list.Write("big-endian version", kNot, 4, 0x03000000u);
  for (const uint64_t count : kHuge) {
    list.Write("tensor count", kBad, 8, count);
    list.Write("key count", kBad, 16, count);
  }
  list.Write("tensor count", std::nullopt, 8, uint64_t{0});
  list.Write("key count", std::nullopt, 16, uint64_t{0});
  for (const int64_t d : {-1, 1}) {
    list.Write("tensor count", std::nullopt, 8, layout.tensors.size() + static_cast<uint64_t>(d));
    list.Write("key count", std::nullopt, 16, layout.keys.size() + static_cast<uint64_t>(d));
  }

  const auto& first_key = layout.keys.front();
  const auto key_text = [&](const GgufLayout::Key& key) {
    return std::string(good.substr(key.text, key.kind - key.text));
  };
  for (const size_t i : Sample(layout.keys.size(), 5, rng)) {
    const auto& key = layout.keys[i];
    const std::string name = "key '" + key_text(key) + "': ";
    list.Cut(name + "before it", kBad, key.at);
    list.Cut(name + "in its name", kBad, key.text + 1);
    list.Cut(name + "before its type", kBad, key.kind);
    list.Cut(name + "before its value", kBad, key.value);
    list.Cut(name + "in its value", kBad, key.end - 1);
    list.Write(name + "name length", kBad, key.at, uint64_t{0});
    list.Write(name + "name length", kBad, key.at, UINT64_MAX);
    list.Write(name + "name length", std::nullopt, key.at, Get<uint64_t>(good, key.at) + 1);
    list.Splice(name + "bad UTF-8 in its name", kBad, key.text, 1, "\xff");
    list.Splice(name + "a surrogate in its name", kBad, key.at, 8,
                Raw(uint64_t{key.kind - key.text + 3}) + "\xed\xa0\x80");
    for (const uint32_t kind : {13u, 0xffffffffu}) list.Write(name + "value type", kBad, key.kind, kind);
    for (const uint32_t kind : {0u, 8u, 9u}) {
      if (kind != key.type) list.Write(name + "value type", std::nullopt, key.kind, kind);
    }
    if (i > 0) {
      list.Splice(name + "renamed as the first", kBad, key.at, key.kind - key.at,
                  std::string(good.substr(first_key.at, first_key.kind - first_key.at)));
    }
  }
  size_t strings = 0, arrays = 0;
  for (const auto& key : layout.keys) {
    const std::string name = "key '" + key_text(key) + "': ";
    if (key.type == 8 && strings++ < 3) {
      for (const uint64_t length : kHuge) list.Write(name + "string length", kBad, key.value, length);
      list.Write(name + "string length", kBad, key.value, uint64_t{good.size()});
      list.Write(name + "string length", std::nullopt, key.value, Get<uint64_t>(good, key.value) + 1);
      if (key.end > key.value + 8) {
        list.Write(name + "string length", std::nullopt, key.value, Get<uint64_t>(good, key.value) - 1);
        list.Splice(name + "bad UTF-8 in its value", std::nullopt, key.value + 8, 1, "\xff");
        list.Splice(name + "terminal codes in its value", std::nullopt, key.value + 8, 1, "\x1b");
      }
    }
    if (key.type == 9 && arrays++ < 4) {
      const auto element = Get<uint32_t>(good, key.value);
      const auto count = Get<uint64_t>(good, key.value + 4);
      for (const uint64_t length : kHuge) list.Write(name + "array length", kBad, key.value + 4, length);
      for (const uint64_t length : {count - 1, count + 1, uint64_t{0}}) {
        if (length != count && length < UINT64_MAX)
          list.Write(name + "array length", std::nullopt, key.value + 4, length);
      }
      list.Write(name + "array of arrays, element type", kNot, key.value, 9u);
      list.Write(name + "element type", kBad, key.value, 13u);
      list.Write(name + "element type", std::nullopt, key.value, element == 8 ? 4u : 8u);
      if (element == 8 && count > 0) {
        list.Write(name + "first element's length", kBad, key.value + 12, UINT64_MAX - 7);
        list.Cut(name + "in its elements", kBad, (key.value + key.end) / 2);
      }
    }
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 0x80000000u}) {
    std::string key = Raw(uint64_t{17}) + "general.alignment" + Raw(4u) + Raw(alignment);
    const uint64_t keys = layout.keys.size() + 1;
    list.items.push_back(
        {"alignment key = " + std::to_string(alignment), kBad,
         [=, at = layout.keys_end](std::string s) { return s.insert(at, key).replace(16, 8, Raw(keys)); }});
  }

  const auto& first = layout.tensors.front();
  for (const size_t i : Sample(layout.tensors.size(), 5, rng)) {
    const auto& tensor = layout.tensors[i];
    const std::string name =
        "tensor '" + std::string(good.substr(tensor.text, tensor.dims - tensor.text)) + "': ";
    list.Cut(name + "before it", kBad, tensor.at);
    list.Cut(name + "in its name", kBad, tensor.text + 1);
    list.Cut(name + "before its shape", kBad, tensor.dims);
    list.Cut(name + "in its shape", kBad, tensor.ne + 3);
    list.Cut(name + "before its type", kBad, tensor.type);
    list.Cut(name + "in its offset", kBad, tensor.offset + 7);
    list.Write(name + "name length", kBad, tensor.at, uint64_t{0});
    list.Write(name + "name length", kBad, tensor.at, uint64_t{1} << 32);
    list.Splice(name + "bad UTF-8 in its name", kBad, tensor.text, 1, "\xc0");
    list.Splice(name + "another name", std::nullopt, tensor.text, 1, "X");
    for (const uint32_t dims : {0u, 5u, 0xffffffffu})
      list.Write(name + "dimensions", kBad, tensor.dims, dims);
    for (const uint64_t ne : {uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX}) {
      list.Write(name + "first dimension", kBad, tensor.ne, ne);
    }
    const auto ne0 = Get<uint64_t>(good, tensor.ne);
    for (const uint64_t ne : {ne0 + 1, ne0 * 2, ne0 - 1}) {
      if (ne > 0) list.Write(name + "first dimension", std::nullopt, tensor.ne, ne);
    }
    const uint32_t type = Get<uint32_t>(good, tensor.type);
    for (const uint32_t other : {0u, 1u, 8u, 14u, 31u, 0xffffffffu}) {
      if (other != type) list.Write(name + "type", std::nullopt, tensor.type, other);
    }
    list.Write(name + "bytes before its data", kBad, tensor.offset, tensor.data + layout.alignment);
    const uint64_t end = (good.size() / layout.alignment + 1) * layout.alignment;
    list.Write(name + "unaligned offset", kBad, tensor.offset, tensor.data + 1);
    list.Write(name + "unaligned offset", kBad, tensor.offset, tensor.data + 4);
    list.Write(name + "offset beyond the end", kBad, tensor.offset, end);
    list.Write(name + "offset beyond the end", kBad, tensor.offset, uint64_t{1} << 63);
    list.Write(name + "offset that overflows", kBad, tensor.offset, uint64_t{0} - layout.alignment);
    if (i > 0) {
      list.Write(name + "offset of the first tensor", kBad, tensor.offset, first.data);
      list.Splice(name + "renamed as the first", kBad, tensor.at, tensor.dims - tensor.at,
                  std::string(good.substr(first.at, first.dims - first.at)));
    }
  }

  // The last data begins here; more than one byte follows in any good file.
  uint64_t last = 0;
  for (const auto& tensor : layout.tensors) last = std::max(last, tensor.data);
  list.Cut("before the data", kBad, layout.tensors.back().end);
  list.Cut("at the data", kBad, layout.data);
  list.Cut("in the data", kBad, layout.data + last / 2);
  list.Cut("at the last tensor's data", kBad, layout.data + last);
  list.Cut("a byte of the last tensor's data left", kBad, layout.data + last + 1);
  list.Splice("twice in one file", std::nullopt, good.size(), 0, std::string(good.substr(0, 4096)));
  list.Splice("zeros after the fixed header", std::nullopt, 24, layout.data - 24,
              std::string(layout.data - 24, '\0'));
  list.Splice("a byte lost in the header", std::nullopt, 24 + rng() % (layout.data - 24), 1, "");
  list.Flips(40, 0, layout.data, rng);
  list.Flips(4, layout.data, good.size(), rng);
  return std::move(list.items);
}

// `good`: a safetensors file with at least two tensors that hold data, without holes, its header written without spaces, as the
// reference library does. Some 150 damages.
inline std::vector<Damage> DamageSafetensors(std::string_view good, uint64_t seed) {
  using namespace damage;
  constexpr Code kBad = Code::kBadFile;
  std::mt19937_64 rng(seed);
  const size_t length = Get<uint64_t>(good, 0), data = 8 + length;
  const std::string header(good.substr(8, length));
  List list;
  // A change of the header's text, the length kept right and the data aligned.
  const auto edit = [&](std::string what, std::optional<Code> code, size_t at, size_t erase,
                        std::string with) {
    list.items.push_back({std::move(what), code, [=](const std::string& s) {
                            std::string text = s.substr(8, length);
                            text.replace(at, erase, with);
                            text.resize((text.size() + 7) / 8 * 8, ' ');
                            return Raw(uint64_t{text.size()}) + text + s.substr(data);
                          }});
  };

  for (const size_t at :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, data, data + 1, good.size() - 1}) {
    list.Cut("the file", kBad, at);
  }
  for (int i = 0; i < 8; ++i) list.Cut("in the header", kBad, 9 + rng() % (length - 1));
  for (int i = 0; i < 4; ++i) list.Cut("in the data", kBad, data + rng() % (good.size() - data));
  for (const uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{100'000'001}, uint64_t{good.size() - 7},
                           uint64_t{1} << 63, UINT64_MAX}) {
    list.Write("header length", kBad, 0, n);
  }
  for (const uint64_t n : {uint64_t{length - 1}, uint64_t{length + 1}, uint64_t{length / 2}}) {
    list.Write("header length", std::nullopt, 0, n);
  }

  const size_t close = header.rfind('}');
  edit("an array instead", kBad, 0, header.size(), "[1,2]");
  edit("a number instead", kBad, 0, header.size(), "7");
  edit("no tensors", std::nullopt, 0, header.size(), "{}");
  edit("deep nesting", kBad, 0, header.size(), std::string(100'000, '['));
  edit("deep objects", kBad, 1, 0, [] {
    std::string deep;
    for (int i = 0; i < 10'000; ++i) deep += "\"a\":{";
    return deep;
  }());
  edit("byte order mark", kBad, 0, 0, "\xef\xbb\xbf");
  edit("a comment", kBad, 0, 0, "/* x */");
  edit("no closing brace", kBad, close, 1, "");
  edit("a brace too many", kBad, close, 0, "}");
  edit("a comma at the end", kBad, close, 0, ",");
  edit("text after the object", kBad, close + 1, 0, "x");
  edit("a NUL after the object", kBad, close + 1, 0, std::string(1, '\0'));
  edit("a tensor that is null", kBad, close, 0, ",\"zzz\":null");
  edit("a tensor that is an array", kBad, close, 0, ",\"zzz\":[]");
  edit("a tensor without keys", kBad, close, 0, ",\"zzz\":{}");
  edit("an empty name", kBad, close, 0, R"(,"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  edit("a lone surrogate", kBad, close, 0, R"(,"\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  edit("a NUL in a name", std::nullopt, close, 0,
       R"(,"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  edit("terminal codes in a name", std::nullopt, close, 0,
       R"(,"\u001b[2J":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  edit("a tensor of unknown type", std::nullopt, close, 0,
       R"(,"zzz":{"dtype":"Q9","shape":[5],"data_offsets":[0,0]})");
  edit("a tensor over others", kBad, close, 0,
       R"(,"zzz":{"dtype":"U8","shape":[)" + std::to_string(good.size() - data) + R"(],"data_offsets":[0,)" +
           std::to_string(good.size() - data) + "]}");

  // Entries: "name":{...,"data_offsets":[a,b]}; keys of an entry stand in any order.
  struct Place {
    size_t name, open, end;
  };
  std::vector<Place> entries;
  for (size_t at = header.find("\"data_offsets\""); at != std::string::npos;
       at = header.find("\"data_offsets\"", at + 1)) {
    const size_t open = header.rfind('{', at), end = header.find('}', at) + 1;
    const size_t name = header.rfind('"', open - 3) + 1;
    const size_t offsets = header.find('[', at);
    if (header.compare(offsets, 5, "[0,0]") == 0) continue;  // holds nothing
    entries.push_back({name, open, end});
  }
  const std::string first_name = header.substr(entries[0].name, entries[0].open - 2 - entries[0].name);
  for (const size_t i : Sample(entries.size(), 4, rng)) {
    const Place& place = entries[i];
    const std::string entry = header.substr(place.open, place.end - place.open);
    const std::string name = "tensor '" + header.substr(place.name, place.open - 2 - place.name) + "': ";
    const auto value = [&](std::string_view key,
                           char closing) {  // [begin, end) of a key's value in the header
      const size_t begin = header.find("\"" + std::string(key) + "\":", place.open) + key.size() + 3;
      return std::pair(begin, header.find(closing, begin + 1) + 1);
    };
    const auto set = [&](std::string_view key, char closing, std::string with, std::optional<Code> code) {
      const auto [begin, end] = value(key, closing);
      edit(name + std::string(key) + " " + with, code, begin, end - begin, with);
    };
    const auto [type_begin, type_end] = value("dtype", '"');
    const std::string type = header.substr(type_begin, type_end - type_begin);
    for (const char* wrong : {"\"F64\"", "\"F32\"", "\"BF16\"", "\"U8\""}) {
      const bool same_width = type == wrong || (type == "\"F16\"" && wrong == std::string_view("\"BF16\"")) ||
                              (type.find('8') != std::string::npos && wrong == std::string_view("\"U8\""));
      if (!same_width)
        set("dtype", '"', wrong, type.find_first_of("FBUI") == 1 ? std::optional(kBad) : std::nullopt);
    }
    set("dtype", '"', "\"\"", std::nullopt);
    set("dtype", '"', "\"Q4_K\"", std::nullopt);
    for (const char* wrong : {"4", "null", "[\"F32\"]"}) set("dtype", '"', wrong, kBad);
    for (const char* wrong :
         {"[-1]", "[0.5]", "[1e999]", "7", "\"4\"", "[[4]]", "[18446744073709551616]", "[0]",
          "[9223372036854775808,2]", "[4294967296,4294967296,4]", "[4,]", "[4 4]", "[01]", "null"}) {
      set("shape", ']', wrong, kBad);
    }
    for (const char* wrong :
         {"[0,0]", "[0]", "[0,4,8]", "[8,4]", "[-4,0]", "[0,18446744073709551615]",
          "[18446744073709551608,18446744073709551615]", "[\"0\",\"4\"]", "{}", "[NaN,4]"}) {
      set("data_offsets", ']', wrong, kBad);
    }
    for (const char* key : {"\"dtype\"", "\"shape\"", "\"data_offsets\""}) {
      edit(name + "no " + key, kBad, header.find(key, place.open) + 1, 1, "X");
    }
    edit(name + "bad UTF-8 in its name", kBad, place.name, 1, "\xff");
    edit(name + "a control in its name", kBad, place.name, 1, "\x01");
    edit(name + "another name", std::nullopt, place.name, 1, "X");
    edit(name + "no colon", kBad, place.open - 1, 1, "");
    edit(name + "no quote", kBad, place.name - 1, 1, "");
    if (i > 0) {
      edit(name + "renamed as the first", kBad, place.name, place.open - 2 - place.name, first_name);
      const auto [begin, end] = value("data_offsets", ']');
      const size_t there = header.find('[', header.find("\"data_offsets\"", entries[0].open));
      edit(name + "offsets of the first", kBad, begin, end - begin,
           header.substr(there, header.find(']', there) + 1 - there));
    }
  }
  list.Flips(40, 0, data, rng);
  list.Flips(4, data, good.size(), rng);
  return std::move(list.items);
}

}  // namespace glint::test

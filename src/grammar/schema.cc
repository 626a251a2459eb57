#include "grammar/schema.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/json_pointer.h"
#include "base/printable.h"
#include "grammar/formats.h"
#include "grammar/numbers.h"
#include "grammar/regex.h"

namespace glint::grammar {
namespace {

// Types as a set. kFraction: numbers that are not whole.
enum Type : uint8_t {
  kNull = 1,
  kBool = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};
constexpr uint8_t kAllTypes = 127;
constexpr uint8_t kNumber = kInteger | kFraction;

// A schema as part of a conjunction: as a whole, or only some of its keywords.
enum class Part : uint8_t { kWhole, kPlain, kAnyOf, kOneOf };
struct Element {
  const Json* schema;
  Part part;
  friend auto operator<=>(const Element&, const Element&) = default;
};
using Conjunction = std::vector<Element>;  // in the schema's order, each once

const std::set<std::string_view>& Annotations() {
  static const std::set<std::string_view> kNames = {
      "$schema",    "$id",         "$comment",  "$defs",           "definitions",
      "title",      "description", "default",   "examples",        "example",
      "deprecated", "readOnly",    "writeOnly", "contentEncoding", "contentMediaType"};
  return kNames;
}

bool IsWhole(const Json& value) {
  const auto* d = std::get_if<double>(&value.data());
  return value.kind() == Json::Kind::kInteger || (d != nullptr && *d == std::trunc(*d));
}

uint8_t TypeOf(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return kNull;
    case Json::Kind::kBool:
      return kBool;
    case Json::Kind::kInteger:
    case Json::Kind::kFloat:
      return IsWhole(value) ? kInteger : kFraction;
    case Json::Kind::kString:
      return kString;
    case Json::Kind::kArray:
      return kArray;
    case Json::Kind::kObject:
      return kObject;
  }
  return 0;
}

// Of a number; exact for integers.
struct Limit {
  long double value = 0;
  bool exclusive = false;
  const Json* at = nullptr;  // the keyword's value
};

long double Number(const Json& value) {
  if (const auto* i = std::get_if<int64_t>(&value.data())) return static_cast<long double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value.data())) return static_cast<long double>(*u);
  const auto* d = std::get_if<double>(&value.data());
  return d != nullptr ? static_cast<long double>(*d) : 0.0L;
}

// What a conjunction says beside its alternatives.
struct Shape {
  uint8_t types = kAllTypes;
  bool typed = false;    // some schema names types
  uint8_t keywords = 0;  // types that have keywords of their own here
  uint32_t min_length = 0, max_length = kNoBound, min_items = 0, max_items = kNoBound;
  std::optional<Limit> lowest, highest;
  std::vector<const Json*> patterns, formats, enums, constants;
  std::vector<const Json*> plain;  // the schemas, for properties and items
};

class Reader {
 public:
  Reader(const Json& root, std::string_view named, const CompileLimits& limits)
      : root_(root), named_(named), limits_(limits) {}

  Result<Schema> Read() {
    const uint32_t root = NodeOf({{&root_, Part::kWhole}});
    for (uint32_t i = 0; status_.ok() && i < pending_.size(); ++i) {
      const auto [conjunction, node] = pending_[i];
      Node made = Make(*conjunction);
      if (!status_.ok()) break;
      nodes_[node] = std::move(made);
    }
    if (!status_.ok()) return status_;
    if (Status status = CheckOneOfs(); !status.ok()) return status;
    Prune();
    if (nodes_[root].kind == Node::Kind::kNever)
      return At(&root_, Code::kBadInput, "no finite value satisfies this schema");
    Schema out;
    out.nodes = std::move(nodes_);
    out.root = root;
    return out;
  }

 private:
  Status At(const Json* where, Code code, std::string_view why) const {
    const std::string path = PointerTo(root_, *where);
    return {code,
            fmt::format("{}: {}: {}", named_, Printable(path.empty() ? "the schema itself" : path), why)};
  }
  void Fail(const Json* where, Code code, std::string_view why) {
    if (status_.ok()) status_ = At(where, code, why);
  }
  void Bad(const Json* where, std::string_view why) { Fail(where, Code::kBadInput, why); }
  bool Spend(const Json* where, size_t work) {
    work_ += work;
    if (work_ > limits_.work)
      Fail(where, Code::kUnsupported, "the schema takes too long to compile; make it smaller");
    return status_.ok();
  }

  uint32_t Add(Node node) {
    nodes_.push_back(std::move(node));
    if (nodes_.size() > limits_.nodes)
      Fail(&root_, Code::kUnsupported,
           fmt::format("more than {} sub-schemas, merged ones included", limits_.nodes));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t Add(Node::Kind kind) {
    Node node;
    node.kind = kind;
    return Add(std::move(node));
  }

  // The node of a conjunction, made later if it is new: circles come to an end here.
  uint32_t NodeOf(Conjunction conjunction) {
    Conjunction unique;
    for (const Element& e : conjunction) {
      if (std::find(unique.begin(), unique.end(), e) == unique.end()) unique.push_back(e);
    }
    Spend(&root_, unique.size() * unique.size());
    const auto [at, is_new] = known_.try_emplace(std::move(unique), 0);
    if (is_new) {
      at->second = Add(Node::Kind::kNever);
      pending_.emplace_back(&at->first, at->second);
    }
    return at->second;
  }

  const Json* Resolve(const Json* ref) {
    const auto* text = std::get_if<std::string>(&ref->data());
    if (text == nullptr) return Bad(ref, "a $ref is a string"), nullptr;
    if (text->empty() || (*text)[0] != '#' || (text->size() > 1 && (*text)[1] != '/')) {
      Fail(ref, Code::kUnsupported,
           fmt::format("{} is no reference inside this schema (#, or #/ and a JSON pointer)", Quoted(*text)));
      return nullptr;
    }
    const Json* at = FindReference(root_, *text);
    if (at == nullptr) Bad(ref, fmt::format("{} is not there", Quoted(*text)));
    return at;
  }

  // Takes references and allOf apart: what is left is plain keywords and groups of alternatives.
  // False if nothing can satisfy it.
  bool Flatten(const Element& e, Conjunction& plain, Conjunction& groups, std::vector<const Json*>& inside) {
    if (!Spend(e.schema, 1 + inside.size())) return true;
    if (e.part == Part::kPlain) return Append(plain, e), true;
    if (e.part != Part::kWhole) return Append(groups, e), true;
    if (const auto* b = std::get_if<bool>(&e.schema->data())) return *b;
    if (e.schema->kind() != Json::Kind::kObject)
      return Bad(e.schema, "a schema is an object or a bool"), true;
    if (std::find(inside.begin(), inside.end(), e.schema) != inside.end())
      return Bad(e.schema, "it refers to itself without end"), true;
    if (inside.size() >= 4 * limits_.depth)
      return Fail(e.schema, Code::kUnsupported, "references and allOf nested too deep"), true;
    inside.push_back(e.schema);
    bool possible = true;
    if (const Json* ref = e.schema->Find("$ref")) {
      const Json* target = Resolve(ref);
      if (target != nullptr) possible = Flatten({target, Part::kWhole}, plain, groups, inside) && possible;
    }
    Append(plain, {e.schema, Part::kPlain});
    for (const Json& part : List(e.schema, "allOf"))
      possible = Flatten({&part, Part::kWhole}, plain, groups, inside) && possible;
    if (e.schema->Find("anyOf") != nullptr) Append(groups, {e.schema, Part::kAnyOf});
    if (e.schema->Find("oneOf") != nullptr) Append(groups, {e.schema, Part::kOneOf});
    inside.pop_back();
    return possible;
  }
  void Append(Conjunction& to, const Element& e) {
    Spend(e.schema, to.size());
    if (std::find(to.begin(), to.end(), e) == to.end()) to.push_back(e);
  }

  const Json::Array& List(const Json* schema, std::string_view key) {
    static const Json::Array kNone;
    const Json* const list = schema->Find(key);
    if (list == nullptr) return kNone;
    if (list->kind() != Json::Kind::kArray || list->items().empty())
      Bad(list, fmt::format("{} is a list of schemas, at least one", key));
    return list->items();
  }

  uint32_t Count(const Json& value) {
    const auto n = value.Get<double>("");
    if (!n.ok() || *n < 0 || *n != std::trunc(*n)) {
      Bad(&value, "it must be a whole number of at least 0");
      return 0;
    }
    return *n > 4e9 ? kNoBound : static_cast<uint32_t>(*n);
  }

  void Types(const Json& value, Shape& shape) {
    uint8_t types = 0;
    const auto add = [&](const Json& name) {
      static const std::map<std::string_view, uint8_t> kNames = {
          {"null", kNull},     {"boolean", kBool}, {"integer", kInteger}, {"number", kNumber},
          {"string", kString}, {"array", kArray},  {"object", kObject}};
      const auto* text = std::get_if<std::string>(&name.data());
      const auto found = text == nullptr ? kNames.end() : kNames.find(*text);
      if (found == kNames.end())
        return Bad(&name, "a type is null, boolean, integer, number, string, array or object");
      types |= found->second;
    };
    if (value.kind() == Json::Kind::kArray) {
      for (const Json& name : value.items()) add(name);
    } else {
      add(value);
    }
    shape.types &= types;
    shape.typed = true;
  }

  void Narrow(std::optional<Limit>& limit, const Json& value, bool exclusive, bool lowest) {
    if (TypeOf(value) != kInteger && TypeOf(value) != kFraction) return Bad(&value, "it must be a number");
    const Limit next{Number(value), exclusive, &value};
    if (!limit || (lowest ? next.value > limit->value : next.value < limit->value) ||
        (next.value == limit->value && exclusive)) {
      limit = next;
    }
  }

  void Keyword(const Json* schema, const Json::Member& member, Shape& shape) {
    const std::string& key = member.key;
    const Json& value = member.value;
    const auto unsupported = [&](std::string_view what) {
      Fail(&value, Code::kUnsupported, fmt::format("{} is not supported", what));
    };
    if (Annotations().contains(key) || key.starts_with("x-")) return;
    if (key == "$ref" || key == "allOf" || key == "anyOf" || key == "oneOf") return;
    if (key == "type") return Types(value, shape);
    if (key == "enum") {
      if (value.kind() != Json::Kind::kArray) return Bad(&value, "an enum is a list of values");
      return shape.enums.push_back(&value);
    }
    if (key == "const") return shape.constants.push_back(&value);
    if (key == "minLength" || key == "maxLength") {
      shape.keywords |= kString;
      if (key == "minLength")
        shape.min_length = std::max(shape.min_length, Count(value));
      else
        shape.max_length = std::min(shape.max_length, Count(value));
    } else if (key == "minItems" || key == "maxItems") {
      shape.keywords |= kArray;
      if (key == "minItems")
        shape.min_items = std::max(shape.min_items, Count(value));
      else
        shape.max_items = std::min(shape.max_items, Count(value));
    } else if (key == "pattern") {
      shape.keywords |= kString;
      if (value.kind() != Json::Kind::kString) return Bad(&value, "a pattern is a string");
      shape.patterns.push_back(&value);
    } else if (key == "format") {
      if (value.kind() != Json::Kind::kString) return Bad(&value, "a format is a string");
      Format(value, shape);
    } else if (key == "minimum" || key == "exclusiveMinimum") {
      shape.keywords |= kNumber;
      Narrow(shape.lowest, value, key != "minimum", true);
    } else if (key == "maximum" || key == "exclusiveMaximum") {
      shape.keywords |= kNumber;
      Narrow(shape.highest, value, key != "maximum", false);
    } else if (key == "properties") {
      shape.keywords |= kObject;
      if (value.kind() != Json::Kind::kObject) Bad(&value, "properties is an object of schemas");
    } else if (key == "required") {
      shape.keywords |= kObject;
      const bool good = value.kind() == Json::Kind::kArray &&
                        std::all_of(value.items().begin(), value.items().end(),
                                    [](const Json& name) { return name.kind() == Json::Kind::kString; });
      if (!good) Bad(&value, "required is a list of names");
    } else if (key == "additionalProperties") {
      shape.keywords |= kObject;
    } else if (key == "items" || key == "prefixItems") {
      shape.keywords |= kArray;
      if (key == "items" && value.kind() == Json::Kind::kArray)
        return unsupported("a list of schemas as items (prefixItems is its name now)");
      if (key == "prefixItems") List(schema, key);
    } else if (key == "uniqueItems") {
      if (const auto* b = std::get_if<bool>(&value.data()); b == nullptr || *b) unsupported("uniqueItems");
    } else if (key == "minProperties" || key == "minContains") {
      if (Count(value) != 0) unsupported(key);
    } else {
      unsupported(fmt::format("the keyword {}", Quoted(key)));
    }
  }

  void Format(const Json& value, Shape& shape) {
    static const std::map<std::string_view, std::pair<long double, long double>> kRanges = {
        {"int32", {-0x1p31L, 0x1p31L - 1}},
        {"int64", {-0x1p63L, 0x1p63L - 1}},
        {"uint8", {0, 255}},
        {"uint16", {0, 65535}},
        {"uint32", {0, 0x1p32L - 1}},
        {"uint64", {0, 0x1p64L - 1}},
        {"uint", {0, 0x1p64L - 1}},
        {"float", {0, -1}},
        {"double", {0, -1}}};
    const auto& name = std::get<std::string>(value.data());
    if (const auto range = kRanges.find(name); range != kRanges.end()) {
      shape.keywords |= kNumber;
      const auto [lo, hi] = range->second;
      if (lo > hi) return;
      if (!shape.lowest || shape.lowest->value < lo) shape.lowest = {lo, false, &value};
      if (!shape.highest || shape.highest->value > hi) shape.highest = {hi, false, &value};
    } else if (FormatPattern(name)) {
      shape.keywords |= kString;
      shape.formats.push_back(&value);
    } else {
      Fail(&value, Code::kUnsupported, fmt::format("the format {} is not supported", Quoted(name)));
    }
  }

  Node Make(const Conjunction& conjunction) {
    Conjunction plain, groups;
    std::vector<const Json*> inside;
    bool possible = true;
    for (const Element& e : conjunction) possible = Flatten(e, plain, groups, inside) && possible;
    Node never;
    if (!possible || !status_.ok()) return never;
    if (!groups.empty()) return Alternatives(plain, groups);

    Shape shape;
    for (const Element& e : plain) {
      shape.plain.push_back(e.schema);
      for (const auto& member : e.schema->members()) {
        Keyword(e.schema, member, shape);
        if (!status_.ok()) return never;
      }
    }
    return Plain(shape);
  }

  // The first group's branches, each with all the rest.
  Node Alternatives(const Conjunction& plain, const Conjunction& groups) {
    const Element& group = groups[0];
    const std::string_view key = group.part == Part::kAnyOf ? "anyOf" : "oneOf";
    Node node;
    node.kind = Node::Kind::kEither;
    for (const Json& branch : List(group.schema, key)) {
      Conjunction all = plain;
      all.insert(all.end(), groups.begin() + 1, groups.end());
      all.push_back({&branch, Part::kWhole});
      node.parts.push_back(NodeOf(std::move(all)));
      if (!status_.ok()) return node;
    }
    if (group.part == Part::kOneOf) one_ofs_.push_back({group.schema->Find(key), node.parts});
    return node;
  }

  Node Plain(Shape& shape) {
    Node never;
    const bool unlimited =
        shape.types == kAllTypes && shape.keywords == 0 && shape.enums.empty() && shape.constants.empty();
    if (unlimited) {
      never.kind = Node::Kind::kAny;
      return never;
    }
    // Without a type, keywords of one say what is meant.
    const bool guessed = !shape.typed && shape.enums.empty() && shape.constants.empty();
    if (guessed) shape.types = shape.keywords;
    if (!shape.enums.empty() || !shape.constants.empty()) return Literals(shape);

    std::vector<Node> nodes;
    const auto add = [&](Node::Kind kind) { nodes.emplace_back().kind = kind; };
    if (shape.types & kNull) add(Node::Kind::kNull);
    if (shape.types & kBool) add(Node::Kind::kBool);
    if (shape.types & kNumber) nodes.push_back(NumberNode(shape));
    if (shape.types & kString) nodes.push_back(StringNode(shape));
    if (shape.types & kArray) nodes.push_back(ArrayNode(shape));
    if (shape.types & kObject) nodes.push_back(ObjectNode(shape));
    for (Node& n : nodes) n.wider = n.wider || guessed;
    if (nodes.empty()) return never;
    if (nodes.size() == 1) return std::move(nodes[0]);
    Node node;
    node.kind = Node::Kind::kEither;
    for (Node& n : nodes) node.parts.push_back(Add(std::move(n)));
    return node;
  }

  static bool Equal(const Json& a, const Json& b) {
    if ((TypeOf(a) & kNumber) && (TypeOf(b) & kNumber)) return Number(a) == Number(b);
    if (a.kind() != b.kind()) return false;
    if (a.kind() == Json::Kind::kArray) {
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), Equal);
    }
    if (a.kind() == Json::Kind::kObject) {
      return a.members().size() == b.members().size() &&
             std::all_of(a.members().begin(), a.members().end(), [&](const Json::Member& m) {
               const Json* other = b.Find(m.key);
               return other != nullptr && Equal(m.value, *other);
             });
    }
    return a.data().index() == b.data().index() && JsonText(a) == JsonText(b);
  }

  Node Literals(Shape& shape) {
    Node node;
    node.kind = Node::Kind::kLiterals;
    std::vector<const Json*> values;
    if (!shape.constants.empty()) {
      values = {shape.constants[0]};
    } else {
      for (const Json& v : shape.enums[0]->items()) values.push_back(&v);
    }
    std::optional<CharDfa> text;
    std::set<std::string> seen;
    for (const Json* v : values) {
      bool allowed = (shape.types & TypeOf(*v)) != 0;
      for (const Json* c : shape.constants) allowed = allowed && Equal(*v, *c);
      for (const Json* list : shape.enums) {
        if (!allowed || list->items().empty()) allowed = false;
        if (!allowed || &list->items()[0] == values[0]) continue;
        if (!Spend(list, list->items().size())) return node;
        allowed = std::any_of(list->items().begin(), list->items().end(),
                              [&](const Json& other) { return Equal(*v, other); });
      }
      if (!allowed) continue;
      const uint8_t type = TypeOf(*v);
      if ((type & (kArray | kObject)) && (shape.keywords & type)) {
        Fail(v, Code::kUnsupported,
             "an array or object as a value beside conditions on arrays or objects is not supported");
        return node;
      }
      if ((type & kString) && (shape.keywords & kString)) {
        if (!text) text = TextDfa(shape);
        if (!text) return node;
        if (!text->Accepts(CodePoints(std::get<std::string>(v->data())))) continue;
      }
      if (type & kNumber) {
        const long double n = Number(*v);
        const auto& lo = shape.lowest;
        const auto& hi = shape.highest;
        if (lo && (n < lo->value || (n == lo->value && lo->exclusive))) continue;
        if (hi && (n > hi->value || (n == hi->value && hi->exclusive))) continue;
      }
      if (seen.insert(JsonText(*v)).second) node.literals.push_back(*v);
    }
    if (node.literals.empty()) node.kind = Node::Kind::kNever;
    return node;
  }

  Node NumberNode(const Shape& shape) {
    Node node;
    const bool whole = (shape.types & kFraction) == 0;
    node.kind = whole ? Node::Kind::kInteger : Node::Kind::kNumber;
    std::optional<Limit> lo = shape.lowest, hi = shape.highest;
    // Digits end before these.
    if (lo && lo->value <= -1e41L) lo.reset();
    if (hi && hi->value >= 1e41L) hi.reset();
    if (!lo && !hi) return node;
    const Json* const at = lo ? lo->at : hi->at;
    if ((lo && std::fabs(lo->value) > 1e30L) || (hi && std::fabs(hi->value) > 1e30L)) {
      Fail(at, Code::kUnsupported, "a bound between 1e30 and 1e41 is not supported");
      return node;
    }
    if (!Spend(at, 20'000)) return node;
    node.kind = Node::Kind::kDigits;
    const auto decimal = [](const Limit& limit) {
      const Json& value = *limit.at;
      if (value.kind() == Json::Kind::kFloat && Number(value) == limit.value)
        return Bound{PlainDecimal(static_cast<double>(limit.value)), limit.exclusive};
      return Bound{PlainDecimal(static_cast<Wide>(limit.value)), limit.exclusive};
    };
    Result<CharDfa> dfa = CharDfa();
    if (whole) {
      std::optional<Wide> least, most;
      if (lo) {
        least = static_cast<Wide>(std::ceil(lo->value));
        if (lo->exclusive && static_cast<long double>(*least) == lo->value) ++*least;
      }
      if (hi) {
        most = static_cast<Wide>(std::floor(hi->value));
        if (hi->exclusive && static_cast<long double>(*most) == hi->value) --*most;
      }
      dfa = WholeNumbers(least, most);
    } else {
      std::optional<Bound> least, most;
      if (lo) least = decimal(*lo);
      if (hi) most = decimal(*hi);
      dfa = Decimals(least, most);
    }
    if (!dfa.ok()) {
      Fail(at, dfa.status().code(), dfa.status().message());
      return node;
    }
    node.dfa = *std::move(dfa);
    if (node.dfa.empty()) node.kind = Node::Kind::kNever;
    return node;
  }

  // Patterns, formats and lengths together; nothing after a failure.
  std::optional<CharDfa> TextDfa(const Shape& shape) {
    CharDfa all = AnyText();
    const auto meet = [&](const Json* at, const Result<CharDfa>& dfa) {
      if (!dfa.ok()) return Fail(at, dfa.status().code(), dfa.status().message());
      if (!Spend(at, dfa->states.size())) return;
      auto both = Intersect(all, *dfa, limits_.dfa_states);
      if (!both.ok()) return Fail(at, both.status().code(), both.status().message());
      all = *std::move(both);
      Spend(at, 4 * all.states.size());
    };
    for (const Json* p : shape.patterns) {
      if (!status_.ok()) return std::nullopt;
      RegexLimits limits;
      limits.work = std::min(limits.work, limits_.work - std::min(limits_.work, work_));
      const auto dfa = CompileRegex(std::get<std::string>(p->data()), limits);
      if (dfa.ok()) Spend(p, 64 * dfa->states.size());
      meet(p, dfa);
    }
    for (const Json* f : shape.formats) {
      if (!status_.ok()) return std::nullopt;
      meet(f, CompileRegex(*FormatPattern(std::get<std::string>(f->data()))));
    }
    if (shape.min_length > 0 || shape.max_length != kNoBound) {
      const Json* at = shape.plain[0];
      const uint32_t last = shape.max_length == kNoBound ? shape.min_length : shape.max_length;
      if (shape.min_length > shape.max_length) return CharDfa();
      if (last > limits_.dfa_states) {
        // A length that no text of the pattern comes near is no condition.
        Fail(at, Code::kUnsupported,
             fmt::format(
                 "a length of {} together with a pattern, format or enum is not supported (at most {})", last,
                 limits_.dfa_states));
        return std::nullopt;
      }
      meet(at, Lengths(shape.min_length, shape.max_length));
    }
    if (!status_.ok()) return std::nullopt;
    return all;
  }

  Node StringNode(const Shape& shape) {
    Node node;
    node.kind = Node::Kind::kString;
    node.least = shape.min_length, node.most = shape.max_length;
    if (node.least > node.most) node.kind = Node::Kind::kNever;
    if (shape.patterns.empty() && shape.formats.empty()) return node;
    auto dfa = TextDfa(shape);
    if (!dfa) return node;
    node.kind = dfa->empty() ? Node::Kind::kNever : Node::Kind::kText;
    node.dfa = *std::move(dfa);
    return node;
  }

  Node ArrayNode(const Shape& shape) {
    Node node;
    node.kind = Node::Kind::kArray;
    node.least = shape.min_items, node.most = shape.max_items;
    if (node.least > node.most) node.kind = Node::Kind::kNever;
    size_t prefix = 0;
    for (const Json* schema : shape.plain) prefix = std::max(prefix, List(schema, "prefixItems").size());
    for (size_t i = 0; i <= prefix && status_.ok(); ++i) {  // the last: all others
      Conjunction item;
      for (const Json* schema : shape.plain) {
        const auto& first = List(schema, "prefixItems");
        const Json* const rest = schema->Find("items");
        if (i < first.size())
          item.push_back({&first[i], Part::kWhole});
        else if (rest != nullptr)
          item.push_back({rest, Part::kWhole});
      }
      const uint32_t made = NodeOf(std::move(item));
      if (i < prefix)
        node.parts.push_back(made);
      else
        node.rest = made, node.has_rest = true;
    }
    return node;
  }

  Node ObjectNode(const Shape& shape) {
    Node node;
    node.kind = Node::Kind::kObject;
    std::unordered_map<std::string_view, size_t> index;
    const auto declare = [&](const std::string& name) {
      const auto [at, is_new] = index.emplace(name, node.properties.size());
      if (is_new) node.properties.push_back({name, 0, false});
      return at->second;
    };
    bool declares = false;
    for (const Json* schema : shape.plain) {
      const Json* const properties = schema->Find("properties");
      declares = declares || properties != nullptr;
      if (properties == nullptr) continue;
      for (const auto& member : properties->members()) declare(member.key);
    }
    for (const Json* schema : shape.plain) {
      const Json* const required = schema->Find("required");
      if (required == nullptr) continue;
      for (const Json& name : required->items()) {
        const auto* text = std::get_if<std::string>(&name.data());
        if (text != nullptr) node.properties[declare(*text)].required = true;
      }
    }
    // Every schema has its say on every property: by name, or with its additionalProperties.
    std::vector<std::pair<const Json*, std::unordered_map<std::string_view, const Json*>>> says;
    Conjunction rest;
    bool forbidden = false;
    for (const Json* schema : shape.plain) {
      auto& [additional, named] = says.emplace_back(schema->Find("additionalProperties"),
                                                    std::unordered_map<std::string_view, const Json*>());
      if (additional != nullptr) rest.push_back({additional, Part::kWhole});
      const auto* b = additional == nullptr ? nullptr : std::get_if<bool>(&additional->data());
      forbidden = forbidden || (b != nullptr && !*b);
      if (const Json* properties = schema->Find("properties")) {
        for (const auto& member : properties->members()) named.emplace(member.key, &member.value);
      }
    }
    for (auto& property : node.properties) {
      Conjunction value;
      for (const auto& [additional, named] : says) {
        if (const auto at = named.find(property.name); at != named.end())
          value.push_back({at->second, Part::kWhole});
        else if (additional != nullptr)
          value.push_back({additional, Part::kWhole});
      }
      if (!Spend(shape.plain[0], says.size())) return node;
      property.node = NodeOf(std::move(value));
    }
    // Undeclared ones only where the schema speaks of them, or declares none.
    node.has_rest = !forbidden && (!rest.empty() || !declares);
    node.wider = !forbidden && !node.has_rest;
    if (node.has_rest) node.rest = NodeOf(std::move(rest));
    return node;
  }

  // oneOf is anyOf where no value can match two branches; that must be seen from types, values and required properties.
  struct OneOf {
    const Json* at;
    std::vector<uint32_t> branches;
  };
  Status CheckOneOfs() {
    for (const OneOf& group : one_ofs_) {
      for (size_t i = 0; i < group.branches.size(); ++i) {
        for (size_t k = i + 1; k < group.branches.size(); ++k) {
          if (!Spend(group.at, 16)) return status_;
          if (Disjoint(group.branches[i], group.branches[k], 8)) continue;
          if (!status_.ok()) return status_;
          return At(
              group.at, Code::kUnsupported,
              fmt::format("branches {} and {} may both match; oneOf is supported where types, constants or a "
                          "required property's constants tell them apart (or use anyOf)",
                          i, k));
        }
      }
    }
    return {};
  }

  uint8_t NodeTypes(const Node& n) const {
    if (n.wider && n.kind != Node::Kind::kObject) return kAllTypes;
    switch (n.kind) {
      case Node::Kind::kNull:
        return kNull;
      case Node::Kind::kBool:
        return kBool;
      case Node::Kind::kString:
      case Node::Kind::kText:
        return kString;
      case Node::Kind::kNumber:
        return kNumber;
      case Node::Kind::kInteger:
        return kInteger;
      case Node::Kind::kDigits:
        return kNumber;
      case Node::Kind::kArray:
        return kArray;
      case Node::Kind::kObject:
        return kObject;
      default:
        return kAllTypes;
    }
  }

  bool Disjoint(uint32_t x, uint32_t y, int depth) {
    const Node &a = nodes_[x], &b = nodes_[y];
    if (!Spend(&root_, 4)) return false;
    if (a.kind == Node::Kind::kNever || b.kind == Node::Kind::kNever) return true;
    if (depth == 0) return false;
    for (const auto& [either, other] : {std::pair(&a, y), std::pair(&b, x)}) {
      if (either->kind == Node::Kind::kEither) {
        return std::all_of(either->parts.begin(), either->parts.end(),
                           [&, o = other](uint32_t part) { return Disjoint(part, o, depth - 1); });
      }
    }
    for (const auto& [literal, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (literal->kind != Node::Kind::kLiterals) continue;
      return std::none_of(literal->literals.begin(), literal->literals.end(), [&, o = other](const Json& v) {
        if (o->kind != Node::Kind::kLiterals) return (NodeTypes(*o) & TypeOf(v)) != 0;
        return !Spend(&root_, o->literals.size()) || std::any_of(o->literals.begin(), o->literals.end(),
                                                                 [&](const Json& w) { return Equal(v, w); });
      });
    }
    if ((NodeTypes(a) & NodeTypes(b)) == 0) return !Guessed(a) && !Guessed(b);
    if (a.kind != Node::Kind::kObject || b.kind != Node::Kind::kObject || Guessed(a) || Guessed(b))
      return false;
    for (const auto& [one, two] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      for (const auto& p : one->properties) {
        if (!p.required) continue;
        const auto same = std::find_if(two->properties.begin(), two->properties.end(),
                                       [&](const Node::Property& q) { return q.name == p.name; });
        if (same == two->properties.end()) {
          if (!two->has_rest && !two->wider) return true;
        } else if (same->required ? Disjoint(p.node, same->node, depth - 1) : false) {
          return true;
        } else if (!same->required && Disjoint(p.node, same->node, depth - 1)) {
          return true;  // where it is absent, the first does not match
        }
      }
    }
    return false;
  }
  // Whether the type was guessed: then values of other types match the schema too.
  static bool Guessed(const Node& n) { return n.wider && n.kind != Node::Kind::kObject; }

  // Takes out what no finite value can be: recursion without end, properties and elements that can't be.
  void Prune() {
    std::vector<bool> can(nodes_.size());
    const auto possible = [&](const Node& n) {
      switch (n.kind) {
        case Node::Kind::kNever:
          return false;
        case Node::Kind::kEither:
          return std::any_of(n.parts.begin(), n.parts.end(), [&](uint32_t p) { return can[p]; });
        case Node::Kind::kArray:
          for (uint32_t i = 0; i < n.least; ++i) {
            if (i >= n.parts.size()) return static_cast<bool>(can[n.rest]);
            if (!can[n.parts[i]]) return false;
          }
          return true;
        case Node::Kind::kObject:
          return std::all_of(n.properties.begin(), n.properties.end(),
                             [&](const Node::Property& p) { return !p.required || can[p.node]; });
        default:
          return true;
      }
    };
    // Backwards first: children come after their parents, mostly.
    for (bool changed = true; changed && Spend(&root_, nodes_.size());) {
      changed = false;
      for (size_t i = nodes_.size(); i-- > 0;) {
        if (!can[i] && possible(nodes_[i])) can[i] = changed = true;
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& n = nodes_[i];
      if (!can[i]) {
        n = Node();
        continue;
      }
      if (n.kind == Node::Kind::kEither) std::erase_if(n.parts, [&](uint32_t p) { return !can[p]; });
      if (n.kind == Node::Kind::kObject) {
        for (const auto& p : n.properties) {
          if (!can[p.node]) n.banned.push_back(p.name);
        }
        std::erase_if(n.properties, [&](const Node::Property& p) { return !can[p.node]; });
        if (n.has_rest && !can[n.rest]) n.has_rest = false;
      }
      if (n.kind == Node::Kind::kArray) {
        for (size_t k = 0; k < n.parts.size(); ++k) {
          if (!can[n.parts[k]]) n.most = std::min(n.most, static_cast<uint32_t>(k)), n.parts.resize(k);
        }
        if (!can[n.rest]) n.most = std::min(n.most, static_cast<uint32_t>(n.parts.size()));
        if (n.parts.size() > n.most) n.parts.resize(n.most);
      }
    }
  }

  const Json& root_;
  const std::string named_;
  const CompileLimits& limits_;
  Status status_;
  size_t work_ = 0;
  std::vector<Node> nodes_;
  std::map<Conjunction, uint32_t> known_;
  std::vector<std::pair<const Conjunction*, uint32_t>> pending_;
  std::vector<OneOf> one_ofs_;
};

void Write(const Json& value, std::string& out) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      out += "null";
      break;
    case Json::Kind::kBool:
      out += std::get<bool>(value.data()) ? "true" : "false";
      break;
    case Json::Kind::kInteger:
      if (const auto* i = std::get_if<int64_t>(&value.data()))
        out += fmt::format("{}", *i);
      else
        out += fmt::format("{}", std::get<uint64_t>(value.data()));
      break;
    case Json::Kind::kFloat: {
      char text[64];
      out.append(text, std::to_chars(text, text + sizeof text, std::get<double>(value.data())).ptr);
      break;
    }
    case Json::Kind::kString:
      out += JsonText(std::get<std::string>(value.data()));
      break;
    case Json::Kind::kArray:
      out += '[';
      for (const Json& item : value.items()) {
        if (&item != &value.items()[0]) out += ',';
        Write(item, out);
      }
      out += ']';
      break;
    case Json::Kind::kObject:
      out += '{';
      for (const auto& member : value.members()) {
        if (&member != &value.members()[0]) out += ',';
        out += JsonText(member.key) + ":";
        Write(member.value, out);
      }
      out += '}';
      break;
  }
}

}  // namespace

std::string JsonText(std::string_view string) {
  std::string out = "\"";
  for (const char c : string) {
    constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
    if (const size_t at = kPlain.find(c); at != std::string_view::npos)
      (out += '\\') += kNames[at];
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string JsonText(const Json& value) {
  std::string out;
  Write(value, out);
  return out;
}

Result<Schema> ReadSchema(const Json& schema, std::string_view named, const CompileLimits& limits) {
  return Reader(schema, named, limits).Read();
}

}  // namespace glint::grammar

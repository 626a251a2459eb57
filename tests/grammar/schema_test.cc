// What is refused, and how: never silently ignored, never without end.
#include "grammar/schema.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/grammar/texts.h"

namespace glint::grammar {
namespace {

TEST(Schema, SaysWhatItCannotDo) {
  const struct {
    const char *schema, *pointer;
    Code code;
  } cases[] = {
      {R"({"not":{}})", "/not", Code::kUnsupported},
      {R"({"type":"object","properties":{"a/b":{"type":"array","uniqueItems":true}}})",
       "/properties/a~1b/uniqueItems", Code::kUnsupported},
      {R"({"if":{},"then":{}})", "/if", Code::kUnsupported},
      {R"({"type":"integer","multipleOf":3})", "/multipleOf", Code::kUnsupported},
      {R"({"type":"object","patternProperties":{"^a":{}}})", "/patternProperties", Code::kUnsupported},
      {R"({"type":"object","minProperties":1})", "/minProperties", Code::kUnsupported},
      {R"({"type":"object","propertyNames":{}})", "/propertyNames", Code::kUnsupported},
      {R"({"type":"object","dependentRequired":{}})", "/dependentRequired", Code::kUnsupported},
      {R"({"type":"array","contains":{}})", "/contains", Code::kUnsupported},
      {R"({"type":"array","items":[{}]})", "/items", Code::kUnsupported},
      {R"({"nullable":true})", "/nullable", Code::kUnsupported},
      {R"({"unknownKeyword":1})", "/unknownKeyword", Code::kUnsupported},
      {R"({"type":"string","format":"regex"})", "/format", Code::kUnsupported},
      {R"x({"type":"string","pattern":"(?=a)"})x", "/pattern", Code::kUnsupported},
      {R"({"type":"string","pattern":"(a)\\1"})", "/pattern", Code::kUnsupported},
      {R"({"type":"string","pattern":"\\bword"})", "/pattern", Code::kUnsupported},
      {R"({"type":"string","pattern":"\\p{L}"})", "/pattern", Code::kUnsupported},
      {R"({"type":"string","pattern":"^+a$"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"{2}a"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"a{3,2}"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"a**"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"(a"})", "/pattern", Code::kBadInput},
      {R"x({"type":"string","pattern":"a)"})x", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"[a"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"[z-a]"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":"\\"})", "/pattern", Code::kBadInput},
      {R"({"type":"string","pattern":7})", "/pattern", Code::kBadInput},
      {R"({"type":"text"})", "/type", Code::kBadInput},
      {R"({"type":["string",3]})", "/type/1", Code::kBadInput},
      {R"({"anyOf":[]})", "/anyOf", Code::kBadInput},
      {R"({"anyOf":[1]})", "/anyOf/0", Code::kBadInput},
      {R"({"properties":[]})", "/properties", Code::kBadInput},
      {R"({"required":"a"})", "/required", Code::kBadInput},
      {R"({"type":"string","minLength":-1})", "/minLength", Code::kBadInput},
      {R"({"type":"integer","minimum":"3"})", "/minimum", Code::kBadInput},
      {R"({"$ref":"#/$defs/none"})", "/$ref", Code::kBadInput},
      {R"({"$ref":"http://example.org/schema"})", "/$ref", Code::kUnsupported},
      {R"({"$ref":"#"})", "the schema itself", Code::kBadInput},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "the schema itself",
       Code::kBadInput},
      {R"(false)", "the schema itself", Code::kBadInput},
      {R"({"enum":[]})", "the schema itself", Code::kBadInput},
      {R"({"type":"string","enum":[1,2]})", "the schema itself", Code::kBadInput},
      {R"({"type":"string","minLength":3,"maxLength":2})", "the schema itself", Code::kBadInput},
      {R"({"type":"string","pattern":"^a{5}$","maxLength":4})", "the schema itself", Code::kBadInput},
      {R"({"type":"integer","minimum":3,"maximum":2})", "the schema itself", Code::kBadInput},
      {R"({"type":"array","items":false,"minItems":1})", "the schema itself", Code::kBadInput},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "the schema itself", Code::kBadInput},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "/oneOf", Code::kUnsupported},
      {R"({"oneOf":[{"properties":{"a":{"type":"integer"}}},{"minLength":3}]})", "/oneOf",
       Code::kUnsupported},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"const":1}}},{"type":"object","properties":{"a":{"const":2}}}]})",
       "/oneOf", Code::kUnsupported},
      {R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"^b"}]})", "/oneOf",
       Code::kUnsupported},
      {R"([])", "the schema itself", Code::kBadInput},
      {R"(7)", "the schema itself", Code::kBadInput},
      {R"({"type":"object")", "schema", Code::kBadInput},
  };
  for (const auto& c : cases) {
    const auto grammar = Grammar::OfSchema(SmallVocabulary(), c.schema, "schema");
    ASSERT_FALSE(grammar.ok()) << c.schema;
    EXPECT_EQ(grammar.status().code(), c.code) << c.schema << "\n" << grammar.status().message();
    EXPECT_NE(grammar.status().message().find(c.pointer), std::string::npos) << c.schema << "\n"
                                                                             << grammar.status().message();
  }
}

std::string Repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// Made to take time or memory without end. Whether they are refused or compiled, they come back; what is compiled has no dead end.
TEST(Schema, BoundsWhatIsMadeToHurt) {
  std::string wide = "{\"type\":\"object\",\"properties\":{", names = "\"enum\":[", ored = "{\"anyOf\":[",
              chain = "{\"$defs\":{";
  for (int i = 0; i < 5000; ++i)
    wide += fmt::format("{}\"property_number_{}\":{{\"type\":\"string\"}}", i ? "," : "", i);
  for (int i = 0; i < 60'000; ++i) names += fmt::format("{}\"value {}\"", i ? "," : "", i * 7919 % 60'000);
  for (int i = 0; i < 2000; ++i)
    ored += fmt::format("{}{{\"type\":\"array\",\"items\":{{\"const\":{}}}}}", i ? "," : "", i);
  for (int i = 0; i < 5000; ++i)
    chain += fmt::format("{}\"d{}\":{{\"$ref\":\"#/$defs/d{}\"}}", i ? "," : "", i, i + 1);
  std::string both = "{\"allOf\":[";
  for (int i = 0; i < 20; ++i)
    both += fmt::format("{}{{\"anyOf\":[{{\"minLength\":{}}},{{\"maxLength\":{}}},{{\"pattern\":\"a{}\"}}]}}",
                        i ? "," : "", i, 90 - i, i);
  const auto pattern = [](const std::string& p) { return "{\"type\":\"string\",\"pattern\":\"" + p + "\"}"; };
  const std::pair<std::string, bool> cases[] = {
      {pattern(Repeated("(", 10'000)), false},
      {pattern(Repeated("(", 10'000) + Repeated(")", 10'000)), false},
      {pattern(Repeated("[", 10'000)), false},
      {pattern("((a{1000}){1000}){1000}"), false},
      {pattern("((((((((((){1000}){1000}){1000}){1000})))))))"), false},
      {pattern("^(a|b)*a(a|b){20}$"), false},
      {pattern("(a*)*(b*)*(c|a)*$"), true},
      {pattern("^(([a-z])+.)+[A-Z]([a-z])+$"), true},
      {pattern(Repeated("a?", 300) + Repeated("a", 300)), false},
      {pattern(Repeated("a?", 30) + Repeated("a", 30)), true},
      {pattern(Repeated(".*", 300)), true},
      {Repeated("{\"items\":", 10'000) + "{}" + Repeated("}", 10'000), false},
      {Repeated("[", 100'000), false},
      {wide + "},\"additionalProperties\":false}", true},
      {"{" + names + "]}", true},
      {ored + "]}", true},
      {chain + ",\"d5000\":{}},\"$ref\":\"#/$defs/d0\"}", false},
      {both + "]}", false},
      {"{\"type\":\"string\",\"maxLength\":1000000000}", true},
      {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":100000,\"maxItems\":1000000000}",
       true},
      {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":1000000}", false},
      {"{\"type\":\"object\",\"properties\":{\"" + Repeated("k", 1'000'000) + "\":{}}}", false},
      {std::string(2'000'000, ' ') + "{}", false},
  };
  for (const auto& [schema, compiles] : cases) {
    SCOPED_TRACE(schema.substr(0, 100));
    const auto grammar = Grammar::OfSchema(SmallVocabulary(), schema, "schema");
    EXPECT_EQ(grammar.ok(), compiles) << grammar.status().message();
    if (!grammar.ok()) {
      EXPECT_TRUE(grammar.status().code() == Code::kUnsupported ||
                  grammar.status().code() == Code::kBadInput);
      EXPECT_LT(grammar.status().message().size(), 1000u);
      continue;
    }
    std::mt19937_64 rng(1);
    Matcher matcher(*grammar);
    for (int step = 0; step < 20; ++step) {
      const auto mask = MaskOf(matcher, *SmallVocabulary());
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < SmallVocabulary()->size(); ++id) {
        if (Has(mask, id)) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty() && !matcher.IsStopped());
      if (allowed.empty()) break;
      ASSERT_TRUE(matcher.Accept(allowed[rng() % allowed.size()]));
    }
  }
}

}  // namespace
}  // namespace glint::grammar

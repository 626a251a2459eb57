#include "text/tool_schemas.h"

#include <gtest/gtest.h>

namespace glint::text {
namespace {

using json_kind::kAny;
using json_kind::kArray;
using json_kind::kBool;
using json_kind::kInteger;
using json_kind::kNull;
using json_kind::kNumber;
using json_kind::kObject;
using json_kind::kString;

JsonKinds Kinds(const std::string& schema, const std::string& root = "{}") {
  return KindsOf(ParseJson(schema, "").value(), ParseJson(root, "").value());
}

TEST(ToolSchemas, KindsOfSchemas) {
  const std::string defs =
      R"({"$defs": {"s": {"type": "string"}, "a/b~": {"enum": [1]}, "loop": {"$ref": "#/$defs/loop"},)"
      R"("all": [{"type": "null"}, {"type": "array"}]}})";
  const std::pair<const char*, int> kCases[] = {
      {"{}", kAny},
      {"true", kAny},
      {R"({"description": "x"})", kAny},
      {R"({"type": "string"})", kString},
      {R"({"type": "integer"})", kInteger},
      {R"({"type": "number"})", kNumber},
      {R"({"type": "boolean"})", kBool},
      {R"({"type": "null"})", kNull},
      {R"({"type": "array", "items": {"type": "string"}})", kArray},
      {R"({"type": "object", "properties": {"type": {"type": "string"}}})", kObject},
      {R"({"type": "any"})", kAny},
      {R"({"type": 7})", kAny},
      {R"({"type": []})", kAny},
      {R"({"type": ["string", "null"]})", kString | kNull},
      {R"({"type": ["string", 3]})", kAny},
      {R"({"type": "string", "nullable": true})", kString | kNull},
      {R"({"type": "string", "nullable": false})", kString},
      {R"({"enum": ["1", "2"]})", kString},
      {R"({"enum": [1, "2", null]})", kInteger | kString | kNull},
      {R"({"enum": [1.5]})", kNumber},
      {R"({"enum": []})", kAny},
      {R"({"const": true})", kBool},
      {R"({"type": ["string", "integer"], "enum": [1, 2]})", kInteger},
      {R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", kString | kInteger},
      {R"({"oneOf": [{"type": "object"}, {"type": "array"}]})", kObject | kArray},
      {R"({"anyOf": []})", kAny},
      {R"({"anyOf": [{"type": "string"}, {}]})", kAny},
      {R"({"allOf": [{"type": ["string", "null"]}, {"type": ["string", "integer"]}]})", kString},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", kAny},  // contradicts itself
      {R"({"$ref": "#/$defs/s"})", kString},
      {R"({"$ref": "#/$defs/a~1b~0"})", kInteger},
      {R"({"$ref": "#/%24defs/a%7e1b~0"})", kInteger},
      {R"({"$ref": "#/$defs/all/1"})", kArray},
      {R"({"$ref": "#/$defs/all/2"})", kAny},
      {R"({"$ref": "#/$defs/all/-"})", kAny},
      {R"({"$ref": "#/$defs/no"})", kAny},
      {R"({"$ref": "https://example.org/x"})", kAny},
      {R"({"$ref": "#/$defs/loop"})", kAny},
      {R"({"anyOf": [{"$ref": "#/$defs/s"}, {"type": "null"}]})", kString | kNull},
  };
  for (const auto& [schema, want] : kCases) EXPECT_EQ(int{Kinds(schema, defs)}, want) << schema;
}

// Sixteen references to the next definition, forty deep: 16^16 steps if nobody counted.
TEST(ToolSchemas, EntangledSchemasCostLittle) {
  for (const std::string any : {"anyOf", "allOf"}) {
    std::string root = R"({"$ref": "#/$defs/0", "$defs": {"40": {"properties": {"x": {"type": "string"}}})";
    for (int i = 0; i < 40; ++i) {
      const std::string next = R"({"$ref": "#/$defs/)" + std::to_string(i + 1) + "\"}";
      root += ",\"" + std::to_string(i) + "\": {\"" + any + "\": [" + next;
      for (int n = 1; n < 16; ++n) root += "," + next;
      root += "]}";
    }
    root += "}}";
    EXPECT_EQ(Kinds(R"({"$ref": "#/$defs/0"})", root), kAny);
    const auto tools =
        ToolSchemas::Read(std::vector<std::string>{R"({"name": "t", "parameters": )" + root + "}"});
    ASSERT_TRUE(tools.ok()) << tools.status().message();
    EXPECT_EQ(tools->Kinds("t", "x"), kAny);
  }
}

TEST(ToolSchemas, ValuesBecomeWhatTheSchemaSays) {
  struct Case {
    const char* spelled;
    int kinds;
    const char* json;
  };
  for (const Case& c : std::initializer_list<Case>{
           // A string is never converted.
           {"007", kString, "\"007\""},
           {"7", kString, "\"7\""},
           {"true", kString, "\"true\""},
           {"null", kString, "\"null\""},
           {"1e5", kString, "\"1e5\""},
           {"{\"a\": 1}", kString, R"("{\"a\": 1}")"},
           {" a\n", kString, R"(" a\n")"},
           {"", kString, "\"\""},
           {"\"q\"", kString, R"("\"q\"")"},
           {"a\\b\t\x01\xc3\xa9", kString, "\"a\\\\b\\t\\u0001\xc3\xa9\""},
           // Others are JSON as spelled.
           {"5", kInteger, "5"},
           {" 5\n", kInteger, "5"},
           {"-12", kInteger, "-12"},
           {"123456789012345678901234567890", kInteger, "123456789012345678901234567890"},
           {"5.0", kInteger, "5"},
           {"1e5", kInteger, "100000"},
           {"5.5", kInteger, "5.5"},
           {"1e300", kInteger, "1e300"},
           {"5.0", kNumber, "5.0"},
           {"5", kNumber, "5"},
           {"2.50", kNumber, "2.50"},
           {"true", kBool, "true"},
           {"True", kBool, "true"},
           {"False", kBool, "false"},
           {"null", kNull, "null"},
           {"None", kNull, "null"},
           {"[1, \"x\"]", kArray, "[1, \"x\"]"},
           {"\n{\"a\": [null]}\n", kObject, "{\"a\": [null]}"},
           // What does not fit is left to the caller's check, and nothing is lost.
           {"007", kInteger, "\"007\""},
           {"five", kInteger, "\"five\""},
           {"None", kInteger, "\"None\""},
           {"yes", kBool, "\"yes\""},
           {"1", kBool, "1"},
           {"", kInteger, "\"\""},
           {"{\"a\": 1", kObject, R"("{\"a\": 1")"},
           {"{\"a\": 1, \"a\": 2}", kObject, R"("{\"a\": 1, \"a\": 2}")"},
           {"NaN", kNumber, "\"NaN\""},
           {"1e999", kNumber, "\"1e999\""},
           {"null", kInteger, "null"},
           // Unions: JSON of one of the kinds, else a string.
           {"null", kString | kNull, "null"},
           {"nul", kString | kNull, "\"nul\""},
           {"5", kString | kNull, "\"5\""},
           {"5", kString | kInteger, "5"},
           {" 5", kString | kInteger, "\" 5\""},
           {"007", kString | kInteger, "\"007\""},
           {"1e5", kString | kInteger, "\"1e5\""},
           {"5.0", kString | kInteger, "\"5.0\""},
           {"5.0", kString | kNumber, "5.0"},
           {"\"5\"", kString | kInteger, R"("\"5\"")"},
           {"[1]", kString | kArray, "[1]"},
           {"[1]", kString | kObject, "\"[1]\""},
           {"5", kInteger | kNull, "5"},
           {"null", kInteger | kNull, "null"},
           // No schema.
           {"5", kAny, "5"},
           {"007", kAny, "\"007\""},
           {"true", kAny, "true"},
           {"True", kAny, "\"True\""},
           {"{}", kAny, "{}"},
           {"text", kAny, "\"text\""},
           {"\"text\"", kAny, R"("\"text\"")"},
       }) {
    EXPECT_EQ(TypedJson(c.spelled, static_cast<JsonKinds>(c.kinds)), c.json)
        << c.spelled << " as " << c.kinds;
  }
}

TEST(ToolSchemas, ReadsToolsInEveryForm) {
  const auto tools = ToolSchemas::Read(std::vector<std::string>{
      R"({"type": "function", "function": {"name": "a", "parameters": {"properties": {"x": {"type": "string"}}}}})",
      R"({"name": "b", "parameters": {"properties": {"y": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}}})",
      R"({"name": "c", "input_schema": {"additionalProperties": {"type": "boolean"}}})",
      R"({"name": "d"})",
      R"({"name": "ab", "parameters": {"properties": {"x": {}, "bx": {}}}})",
      R"({"name": "e", "parameters": {"allOf": [{"$ref": "#/$defs/p"}, {"properties": {"x": {"type": "null"}}}],)"
      R"("$defs": {"p": {"properties": {"y": {"type": "array"}}, "$ref": "#/$defs/p"}}}})",
  });
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  EXPECT_EQ(tools->Kinds("e", "x"), kNull);
  EXPECT_EQ(tools->Kinds("e", "y"), kArray);
  EXPECT_EQ(tools->Kinds("e", "z"), kAny);
  EXPECT_EQ(tools->Kinds("a", "x"), kString);
  EXPECT_EQ(tools->Kinds("a", "z"), kAny);
  EXPECT_EQ(tools->Kinds("b", "y"), kNull);
  EXPECT_EQ(tools->Kinds("c", "any"), kBool);
  EXPECT_EQ(tools->Kinds("d", "x"), kAny);
  EXPECT_EQ(tools->Kinds("none", "x"), kAny);
  EXPECT_TRUE(tools->Has("d"));
  EXPECT_FALSE(tools->Has("f"));

  std::string name, argument;
  EXPECT_TRUE(tools->Split("abx", name, argument));  // ab(x), not a(bx): the longest name
  EXPECT_EQ(name, "ab");
  EXPECT_EQ(argument, "x");
  EXPECT_TRUE(tools->Split(" a\n x ", name, argument));
  EXPECT_EQ(name, "a");
  EXPECT_EQ(argument, "x");
  EXPECT_FALSE(tools->Split("ay", name, argument));
  EXPECT_FALSE(tools->Split("a", name, argument));
}

TEST(ToolSchemas, BadToolsAreErrorsWithPlace) {
  for (const std::string bad : {"", "[]", "{}", "{\"name\": 1}", "{\"name\": \"\"}", "{\"function\": 1}"}) {
    const auto tools = ToolSchemas::Read(std::vector<std::string>{R"({"name": "a"})", bad});
    ASSERT_FALSE(tools.ok()) << bad;
    EXPECT_EQ(tools.status().code(), Code::kBadInput);
    EXPECT_NE(tools.status().message().find("tool 1"), std::string::npos) << tools.status().message();
  }
}

}  // namespace
}  // namespace glint::text

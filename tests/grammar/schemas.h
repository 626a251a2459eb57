// Schemas with documents that they allow and that they do not. All documents are spelled as docs/grammar.md says; the referee
// (referee_schema.py) is asked whether it agrees.
#pragma once
#include <string>
#include <vector>

namespace glint::grammar {

struct Case {
  const char* schema;
  std::vector<const char*> right, wrong;
};

inline const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {R"({})", {"1", "null", R"({"a":[1,{"b":"c"}]})", R"(["x", -0.5e-3])"}, {"", "01", "1.", "{", "[1,]", "nul", "'a'"}},
      {R"(true)", {"[]", "0", "\"\\ud83d\\ude00\""}, {"\"\\ud83d\"", "\"\\ude00\"", "\"\t\"", "\"\xff\""}},
      {R"({"type":"object"})", {"{}", R"({"a": {}})", "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}"}, {"[]", "1", "{,}", R"({"a"})"}},
      {R"({"type":"null"})", {"null"}, {"0", "nulll"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"0", "True"}},
      {R"({"type":"integer"})", {"0", "-1", "12345678901234567890"}, {"1.5", "-", "", "1e", "00"}},
      {R"({"type":"number"})", {"0", "-1.25", "1e10", "0.5E-3"}, {"1e", ".5", "+1", "0x1", "1.e3"}},
      {R"({"type":"string"})", {R"("")", R"("a\"\\\/\b\f\n\r\t\u00e9")", "\"\xc3\xa9\xf0\x9f\x98\x80\""}, {"\"", "a", R"("\x")", R"("\u12")", "\"\xc0\x80\"", "\"\xed\xa0\x80\""}},
      {R"({"type":["string","null"]})", {R"("a")", "null"}, {"1", "nul"}},
      {R"({"enum":["a","ab",1,12,null,{"x":[1,2]}]})", {R"("a")", R"("ab")", "1", "12", "null", R"({"x":[1,2]})"}, {R"("b")", "2", R"("abc")", "{}"}},
      {R"({"const":"x\"\n\u00e9"})", {"\"x\\\"\\n\xc3\xa9\""}, {R"("x")"}},
      {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
      {R"({"type":"integer","minimum":-5,"maximum":120})", {"-5", "-1", "0", "7", "99", "100", "120"}, {"-6", "121", "1000", "-10", "07"}},
      {R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10})", {"1", "9"}, {"0", "10", "-1"}},
      {R"({"type":"integer","minimum":1000})", {"1000", "1001", "99999"}, {"999", "-1000", "0"}},
      {R"({"type":"integer","maximum":-3})", {"-3", "-4", "-10", "-99"}, {"-2", "0", "3"}},
      {R"({"type":"integer","minimum":-0.5,"maximum":2.5})", {"0", "1", "2"}, {"-1", "3"}},
      {R"({"type":"number","minimum":0,"maximum":1})", {"0", "0.25", "1", "1.0", "0.999"}, {"-0.1", "1.01", "2", "1.1"}},
      {R"({"type":"number","exclusiveMinimum":-1.5,"maximum":12.25})", {"-1.49", "-1", "0", "12.25", "12.2", "9.99", "12"}, {"-1.5", "-2", "12.26", "12.3", "13", "100"}},
      {R"({"type":"number","exclusiveMinimum":0})", {"0.1", "1", "0.001"}, {"0", "-1", "0.0"}},
      {R"({"type":"string","minLength":2,"maxLength":4})", {R"("ab")", R"("abcd")", "\"\xc3\xa9\xc3\xa9\"", R"("\ud83d\ude00\u00e9")", R"("\n\n\n\n")"}, {R"("")", R"("a")", R"("abcde")", R"("\ud83d\ude00")"}},
      {R"({"type":"string","minLength":3})", {R"("abc")", R"("abcdefgh")"}, {R"("ab")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","pattern":"^[a-z]+(-[0-9]{2,3})?$"})", {R"("abc")", R"("a-12")", R"("a-123")"}, {R"("")", R"("A")", R"("a-1")", R"("a-1234")"}},
      {R"({"type":"string","pattern":"b|^c"})", {R"("b")", R"("abz")", R"("cz")"}, {R"("a")", R"("ac")", R"("")"}},
      {R"({"type":"string","pattern":"^\\d{3}\\.\\w$","maxLength":5})", {R"("123.a")", R"("000._")"}, {R"("1234a")", R"("12.a")"}},
      {R"({"type":"string","pattern":"^\\S+\\s\\S+$","maxLength":6})", {R"("a b")", R"("ab cde")"}, {R"("ab")", R"("ab cdef")"}},
      {R"({"type":"string","pattern":"^[^\"\\\\]*\"$"})", {R"("\"")", R"("ab\"")"}, {R"("")", R"("\\\"")"}},
      {"{\"type\":\"string\",\"pattern\":\"^[\xc3\xa9-\xe4\xb8\xad]{1,2}$\"}", {"\"\xc3\xa9\"", "\"\xe4\xb8\xad\xc3\xaa\""}, {"\"a\"", "\"\xe5\xb8\xad\""}},
      {R"({"type":"string","pattern":"^(?:a|b){2}$|^$"})", {R"("ab")", R"("")"}, {R"("a")", R"("abb")"}},
      {R"({"type":"string","format":"date"})", {R"("2024-02-29")", R"("1999-12-31")"}, {R"("2023-02-29")", R"("2023-13-01")", R"("2023-04-31")"}},
      {R"({"type":"string","format":"ipv4"})", {R"("127.0.0.1")", R"("255.255.255.255")"}, {R"("256.1.1.1")", R"("1.1.1")"}},
      {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]", "[ 1 ]"}, {"[1,]", "[\"a\"]", "[1 2]", "["}},
      {R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3})", {"[true,false]", "[true, true, false]"}, {"[]", "[true]", "[true,true,true,true]"}},
      {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})", {R"(["a",1])", R"(["a"])", "[]"}, {R"([1])", R"(["a",1,2])"}},
      {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"},"minItems":2,"maxItems":3})", {R"(["a",null])", R"(["a", null, null])"}, {R"(["a"])", R"(["a",null,null,null])", R"(["a",1])"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"ab":{"type":"null"}},"required":["b"],"additionalProperties":false})",
       {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a": 1, "b": "x", "ab": null})", R"({"b":"","ab":null})"},
       {R"({})", R"({"a":1})", R"({"b":1})", R"({"b":"x","c":1})", R"({"a":1,"ab":null})"}},
      {R"({"type":"object","properties":{},"additionalProperties":false})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {R"({})", R"({"a":1})", R"({"a":1,"b":"c"})", R"({"aa":"x","":"y"})"}, {R"({"a":"x"})", R"({"b":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"array","items":{"type":"number"}}})", {R"({"x":[1,2.5]})", "{}"}, {R"({"x":1})"}},
      {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}},"additionalProperties":true})", {R"({"b":null})", R"({"ab":1})"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a\"b":{"type":"null"},"é":{"type":"null"}},"required":["é"],"additionalProperties":false})", {"{\"a\\\"b\":null,\"\xc3\xa9\":null}"}, {"{\"a\\\"b\":null}"}},
      {R"({"type":"object","required":["x"]})", {R"({"x":1})", R"({"x": [], "y": 2})"}, {"{}", R"({"y":1})"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}]})",
       {"1", R"({"a":1})", R"({"a":"x"})"}, {"null", R"({"a":null})", "{}"}},
      {R"({"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"x":{"type":"integer"}},"required":["x"]},{"properties":{"y":{"type":"null"}},"required":["y"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"a","y":null})"}, {R"({"k":"a"})", R"({"x":1})"}},
      {R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"integer"}},"required":["kind","n"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"],"additionalProperties":false},{"type":"null"}]})",
       {R"({"kind":"a","n":1})", R"({"kind":"b"})", "null"}, {R"({"kind":"b","n":1})", R"({"kind":"c"})", R"({"kind":"a"})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":0}},"required":["a"]},{"properties":{"a":{"maximum":9},"b":{"type":"null"}}}]})",
       {R"({"a":5})", R"({"a":0,"b":null})"}, {R"({"a":10})", R"({"a":-1})", R"({"b":null})"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"}, {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
      {R"({"$ref":"#/definitions/a~1b","description":"x","definitions":{"a/b":{"type":"boolean"}}})", {"true"}, {"1"}},
      {R"({"type":"object","properties":{"list":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer","format":"int32"}},"required":["id"],"additionalProperties":false},"maxItems":2}},"required":["list"],"additionalProperties":false})",
       {R"({"list":[]})", R"({"list": [{"id": 1}, {"id": -2147483648}]})"}, {R"({"list":[{"id":2147483648}]})", R"({"list":[{"id":1},{"id":1},{"id":1}]})"}},
  };
  return kCases;
}

}  // namespace glint::grammar

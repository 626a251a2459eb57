#include "base/json_pointer.h"

#include <gtest/gtest.h>

namespace glint {
namespace {

Json Read(std::string_view text) { return *ParseJson(text, "test"); }

// The document and the pointers of RFC 6901, sections 5 and 6.
TEST(JsonPointer, TheStandardsExamples) {
  const Json root = Read(
      R"({"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8})");
  EXPECT_EQ(FindReference(root, "#"), &root);
  EXPECT_EQ(FindReference(root, "#/foo"), root.Find("foo"));
  EXPECT_EQ(FindReference(root, "#/foo/0"), &root.Find("foo")->items()[0]);
  const std::vector<std::pair<std::string_view, std::string_view>> members = {
      {"#/", ""},          {"#/a~1b", "a/b"},   {"#/c%25d", "c%d"}, {"#/e%5Ef", "e^f"}, {"#/g%7Ch", "g|h"},
      {"#/i%5Cj", "i\\j"}, {"#/k%22l", "k\"l"}, {"#/%20", " "},     {"#/m~0n", "m~n"},  {"#/m%7e0n", "m~n"}};
  for (const auto& [reference, key] : members) {
    const Json* wanted = root.Find(key);
    ASSERT_NE(wanted, nullptr) << key;
    EXPECT_EQ(FindReference(root, reference), wanted) << reference;
  }
  EXPECT_EQ(PointerTo(root, root), "");
  EXPECT_EQ(PointerTo(root, root.Find("foo")->items()[1]), "/foo/1");
  EXPECT_EQ(PointerTo(root, *root.Find("m~n")), "/m~0n");
}

TEST(JsonPointer, NothingIsThere) {
  const Json root = Read(R"({"foo": ["bar"], "object": {"1": 2}})");
  for (const std::string_view reference :
       {"", "/foo", "foo", "#foo", "#/fo", "#/foo/", "#/foo/1", "#/foo/-", "#/foo/-1", "#/foo/00", "#/foo/0x",
        "#/foo/+0", "#/foo/0/1", "#/foo/99999999999999999999", "#/object/01", "#/foo%2"}) {
    EXPECT_EQ(FindReference(root, reference), nullptr) << reference;
  }
  EXPECT_EQ(FindReference(root, "#/object/1"), root.Find("object")->Find("1"));
}

}  // namespace
}  // namespace glint

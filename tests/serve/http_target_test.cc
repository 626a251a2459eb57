#include "serve/http_target.h"

#include <gtest/gtest.h>

#include <random>

namespace glint::serve {
namespace {

TEST(HttpTarget, TakesPathAndQueryApart) {
  const struct {
    std::string_view target, path;
    HttpHeaders query;
  } cases[]{
      {"/", "/", {}},
      {"*", "*", {}},
      {"/v1/models", "/v1/models", {}},
      {"//v1///models/", "/v1/models", {}},
      {"/a%20b/%c3%A9", "/a b/\xc3\xa9", {}},
      {"/a+b", "/a+b", {}},
      {"/...", "/...", {}},
      {"/.hidden", "/.hidden", {}},
      {"/x?", "/x", {}},
      {"/x?a=1&b=two&a=3", "/x", {{"a", "1"}, {"b", "two"}, {"a", "3"}}},
      {"/x?a&&=v&c=", "/x", {{"a", ""}, {"", "v"}, {"c", ""}}},
      {"/x?q=a%20b+c%2Bd%26e%3d../%2e", "/x", {{"q", "a b c+d&e=../."}}},
      {"/x?a=b=c?d", "/x", {{"a", "b=c?d"}}},
      {"/x#part", "/x", {}},
      {"http://host:80/v1?k=v", "/v1", {{"k", "v"}}},
      {"https://host", "/", {}},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseTarget(c.target);
    ASSERT_TRUE(parsed.ok()) << c.target << ": " << parsed.status().message();
    EXPECT_EQ(parsed->path, c.path) << c.target;
    EXPECT_EQ(parsed->query, c.query) << c.target;
  }
}

TEST(HttpTarget, RefusesWhatIsNoSafeName) {
  for (const std::string_view target : {"",
                                        "x",
                                        "?a=b",
                                        "host/path",
                                        "/..",
                                        "/a/../b",
                                        "/a/./b",
                                        "/%2e%2e/b",
                                        "/.%2E",
                                        "/a%2fb",
                                        "/a%5cb",
                                        "/a\\b",
                                        "/a%00b",
                                        "/a%0d%0aSet-Cookie",
                                        "/a%7f",
                                        "/%",
                                        "/%4",
                                        "/%zz",
                                        "/%c3",
                                        "/%ff",
                                        "/%c0%ae%c0%ae/",
                                        "/%ed%a0%80",
                                        "/x?a=%",
                                        "/x?%f=1",
                                        "/x?a=%ff",
                                        "http://host/../x",
                                        "ftp://host/x"}) {
    const auto parsed = ParseTarget(target);
    EXPECT_FALSE(parsed.ok()) << target;
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), Code::kBadInput);
    }
  }
}

// Whatever bytes a name and a value have, escaping them all and taking the target apart gives them back.
TEST(HttpTarget, GivesBackWhatWasEscaped) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto escaped = [](const std::string& text) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    std::string out;
    for (const unsigned char c : text) ((out += '%') += kHex[c >> 4]) += kHex[c & 15];
    return out;
  };
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::string name, value;
    for (auto* text : {&name, &value})
      for (uint64_t n = rng() % 20; n > 0; --n) *text += static_cast<char>(rng() % 128);
    const auto parsed = ParseTarget("/p?" + escaped(name) + "=" + escaped(value));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->query, (HttpHeaders{{name, value}}));
  }
}

}  // namespace
}  // namespace glint::serve

// Switches on one bug after another and shows which check catches it (docs/testing.md has the list). Built with GLINT_MUTATIONS alone.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/mutation.h"
#include "tests/mutations/checks.h"

namespace glint::test {
namespace {

using Check = std::string (*)();
const std::map<std::string, Check>& Checks() {
  static const std::map<std::string, Check> checks{
      {"reference", CheckReference},        {"verify", CheckVerify},
      {"same bits", CheckSameBits},         {"states", CheckStates},
      {"session files", CheckSessionFiles}, {"double", CheckDouble},
      {"formulas", CheckFormulas},          {"ties", CheckTies}};
  return checks;
}

struct Row {
  std::string name, caught_by;
};

// The table of docs/testing.md between the marks: name, what is wrong, caught by.
std::vector<Row> Documented() {
  std::ifstream file(GLINT_SOURCE_DIR "/docs/testing.md");
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "<!-- mutations -->") inside = !inside;
    if (!inside || !line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream cut(line.substr(1));
    for (std::string cell; std::getline(cut, cell, '|');) {
      const size_t first = cell.find_first_not_of(" `"), last = cell.find_last_not_of(" `");
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last + 1 - first));
    }
    if (cells.size() >= 3) rows.push_back({cells[0], cells[2]});
  }
  return rows;
}

TEST(Mutations, TheListOfTheDocumentationIsWhole) {
  const auto rows = Documented();
  ASSERT_EQ(rows.size(), static_cast<size_t>(Mutation::kCount) - 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, Name(static_cast<Mutation>(i + 1)));
    EXPECT_TRUE(Checks().contains(rows[i].caught_by))
        << rows[i].name << ": there is no check '" << rows[i].caught_by << "'";
  }
}

TEST(Mutations, NothingIsFoundWithoutOne) {
  Mutate(Mutation::kNone);
  for (const auto& [name, check] : Checks()) EXPECT_EQ(check(), "") << name;
}

class EachMutation : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Kit, EachMutation, testing::Range(1, static_cast<int>(Mutation::kCount)),
                         [](const auto& p) { return std::string(Name(static_cast<Mutation>(p.param))); });

TEST_P(EachMutation, IsCaught) {
  const auto mutation = static_cast<Mutation>(GetParam());
  const auto rows = Documented();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == Name(mutation); });
  const std::string documented = row == rows.end() ? "" : row->caught_by;
  Mutate(mutation);
  std::string found = Checks().contains(documented) ? Checks().at(documented)() : "";
  std::string by = documented;
  if (found.empty()) {  // say which check would
    for (const auto& [name, check] : Checks()) {
      if (found.empty()) found = check(), by = name;
    }
  }
  Mutate(Mutation::kNone);
  ASSERT_FALSE(found.empty()) << "no check catches it";
  EXPECT_EQ(by, documented) << "docs/testing.md names another check";
  printf("%s: %s\n", by.c_str(), found.substr(0, 300).c_str());
}

}  // namespace
}  // namespace glint::test

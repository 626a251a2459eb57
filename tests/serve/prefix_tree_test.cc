// The tree of histories, held against a list that is searched from end to end.
#include "serve/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;
using Tree = PrefixTree<int>;  // 0: nothing

int64_t Common(const Ids& a, const Ids& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

void CheckNode(const Tree::Node& node) {
  for (const auto& [first, child] : node.children) {
    ASSERT_FALSE(child->run.empty());
    EXPECT_EQ(child->run[0], first);
    EXPECT_EQ(child->parent, &node);
    EXPECT_EQ(child->end, node.end + std::ssize(child->run));
    EXPECT_TRUE(child->value != 0 || child->children.size() > 1) << "a node that nothing needs";
    CheckNode(*child);
  }
}

TEST(PrefixTree, FindsWhatAListFinds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 40; ++round) {
    Tree tree;
    std::map<Ids, std::pair<int, Tree::Node*>> all;
    std::vector<Ids> known = {{}};
    const auto any = [&] {  // often begins as another
      Ids ids = known[rng() % known.size()];
      if (!ids.empty() && rng() % 2 == 0) ids.resize(1 + rng() % ids.size());
      for (size_t n = rng() % 4; n > 0; --n) ids.push_back(static_cast<int32_t>(rng() % 3));
      return ids;
    };
    for (int step = 1; step < 120; ++step) {
      if (!all.empty() && rng() % 3 == 0) {
        auto gone = all.begin();
        std::advance(gone, static_cast<ptrdiff_t>(rng() % all.size()));
        gone->second.second->value = 0;
        tree.Prune(gone->second.second, [](int value) { return value != 0; });
        all.erase(gone);
      } else {
        const Ids ids = any();
        if (ids.empty()) continue;
        Tree::Node* const node = tree.Insert(ids);
        node->value = step;
        all[ids] = {step, node};
        known.push_back(ids);
      }
      CheckNode(tree.root());
      for (const auto& [ids, at] : all) {
        ASSERT_EQ(tree.Insert(ids), at.second);  // nodes stay where they are
        ASSERT_EQ(at.second->value, at.first);
      }
      const Ids prompt = any();
      const auto walk = tree.Follow(prompt);
      int64_t shared = 0;
      std::vector<int> on_path, path;
      for (const auto& [ids, at] : all) {
        shared = std::max(shared, Common(ids, prompt));
        if (Common(ids, prompt) == std::ssize(ids)) on_path.push_back(at.first);
      }
      EXPECT_EQ(walk.shared, shared);
      for (const Tree::Node* node : walk.path) {
        if (node->value != 0) path.push_back(node->value);
      }
      std::sort(on_path.begin(), on_path.end());
      std::sort(path.begin(), path.end());
      EXPECT_EQ(path, on_path);
      // All that share as much are under `below`.
      for (const auto& [ids, at] : all) {
        if (Common(ids, prompt) < shared) continue;
        const Tree::Node* up = at.second;
        while (up != nullptr && up != walk.below) up = up->parent;
        EXPECT_NE(up, nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace glint::serve

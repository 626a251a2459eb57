// Histories of tokens by what they begin with: a tree whose branches are where they part.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace glint::serve {

// Value: what a history may have; default-constructed: nothing. Nodes stay where they are until they are pruned.
template <class Value>
class PrefixTree {
 public:
  struct Node {
    std::vector<int32_t> run = {};  // tokens from the parent's end to this node's
    Node* parent = nullptr;
    int64_t end = 0;                                         // tokens from the root
    std::map<int32_t, std::unique_ptr<Node>> children = {};  // by their first token
    Value value = {};
  };

  // How far the tree knows some tokens.
  struct Walk {
    int64_t shared = 0;            // tokens that some history begins with
    std::vector<Node*> path = {};  // nodes that the tokens go through to their end, the root first
    Node* below = nullptr;         // all histories that have the shared tokens are in this node and under it
  };
  Walk Follow(std::span<const int32_t> tokens) {
    Walk walk;
    Node* node = &root_;
    while (true) {
      walk.path.push_back(node);
      walk.below = node;
      walk.shared = node->end;
      const auto rest = tokens.subspan(static_cast<size_t>(node->end));
      const auto child = rest.empty() ? node->children.end() : node->children.find(rest[0]);
      if (child == node->children.end()) return walk;
      const int64_t same = Same(child->second->run, rest);
      if (same < std::ssize(child->second->run)) {
        walk.shared += same;
        walk.below = child->second.get();
        return walk;
      }
      node = child->second.get();
    }
  }

  // The node of a history, made if there is none.
  Node* Insert(std::span<const int32_t> tokens) {
    Node* node = Follow(tokens).path.back();
    const auto rest = tokens.subspan(static_cast<size_t>(node->end));
    if (rest.empty()) return node;
    std::unique_ptr<Node>& at = node->children[rest[0]];
    auto made = std::make_unique<Node>();
    made->parent = node;
    if (at == nullptr) {
      made->run.assign(rest.begin(), rest.end());
      made->end = node->end + std::ssize(rest);
      at = std::move(made);
      return at.get();
    }
    // The child's run is cut in two where the tokens part from it.
    std::unique_ptr<Node> child = std::move(at);
    const int64_t same = Same(child->run, rest);
    made->run.assign(child->run.begin(), child->run.begin() + same);
    made->end = node->end + same;
    child->run.erase(child->run.begin(), child->run.begin() + same);
    child->parent = made.get();
    Node* const middle = made.get();
    middle->children.emplace(child->run[0], std::move(child));
    at = std::move(made);
    return middle->end == std::ssize(tokens) ? middle : Insert(tokens);
  }

  // Removes the node if nothing needs it, and its parents likewise. needed(value): whether there is something.
  template <class Needed>
  void Prune(Node* node, Needed&& needed) {
    while (node->parent != nullptr && !needed(node->value)) {
      Node* const parent = node->parent;
      if (node->children.size() > 1) return;
      if (node->children.size() == 1) {  // the child takes its place
        std::unique_ptr<Node> child = std::move(node->children.begin()->second);
        child->run.insert(child->run.begin(), node->run.begin(), node->run.end());
        child->parent = parent;
        parent->children[child->run[0]] = std::move(child);
        return;
      }
      const int32_t first = node->run[0];
      parent->children.erase(first);
      node = parent;
    }
  }

  Node& root() { return root_; }

 private:
  static int64_t Same(std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  Node root_;
};

}  // namespace glint::serve

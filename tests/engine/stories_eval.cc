// Measures a model as models/stories/README.md reports it: stories_eval MODEL TEXT_FILE. Loss on the whole text in windows of 1,024 tokens by
// steps of 512 (tests/engine/stories.h), and how often the MTP block's draft is the trunk's choice.
#include <cstdio>

#include "base/file.h"
#include "tests/engine/stories.h"

int main(int argc, char** argv) {
  using namespace glint;
  if (argc != 3) {
    std::fprintf(stderr, "usage: stories_eval MODEL TEXT_FILE\n");
    return 2;
  }
  const auto text = ReadFile(argv[2]);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.status().message().c_str());
    return 1;
  }
  Model model = test::MustOpen(argv[1], {.mtp = true});
  const auto ids = model.tokenizer().Encode(*text);
  const auto result = test::Loss(model, ids, 1024, 512);
  double accepted = 0;
  int windows = 0;
  for (size_t at = 0; at + 1024 <= ids.size() && windows < 24; at += 1024, ++windows) {
    accepted += test::DraftAcceptance(model, std::span(ids).subspan(at, 1024));
  }
  std::printf(
      "%s: loss %.5f, perplexity %.3f a token, %.4f bits a byte, %lld tokens scored; drafts %.3f\n", argv[1],
      result.loss, std::exp(result.loss),
      result.loss * static_cast<double>(result.scored) / std::log(2.0) / static_cast<double>(text->size()),
      static_cast<long long>(result.scored), accepted / windows);
}

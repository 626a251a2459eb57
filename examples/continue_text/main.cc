// Continues a text: continue_text MODEL "Once upon a time" [TOKENS]
#include <glint/model.h>
#include <glint/sampler.h>
#include <glint/session.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int Fail(const glint::Status& status) {
  std::fprintf(stderr, "continue_text: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: continue_text MODEL TEXT [TOKENS]\n");
    return 2;
  }
  const long tokens = argc > 3 ? std::atol(argv[3]) : 64;

  const auto model = glint::Model::Open(argv[1]);
  if (!model.ok()) return Fail(model.status());
  if (!model->has_tokenizer()) return Fail({glint::Code::kBadInput, "the model has no tokenizer"});
  const auto& tokenizer = model->tokenizer();

  auto session = glint::Session::Create(*model, {.context = 2048});
  if (!session.ok()) return Fail(session.status());
  const auto hints = model->suggested_sampling();
  auto sampler = glint::Sampler::Create(
      {.temperature = hints.temperature.value_or(1), .top_p = hints.top_p.value_or(1), .seed = 1},
      model->usable_vocab());
  if (!sampler.ok()) return Fail(sampler.status());

  std::vector<float> logits(static_cast<size_t>(model->vocab_size()));
  auto next = tokenizer.Encode(argv[2]);
  auto stream = tokenizer.Stream();
  std::printf("%s", argv[2]);
  for (long n = 0; n < tokens; ++n) {
    const auto status = session->Append(next, glint::LogitRows::kLast, logits);
    if (!status.ok()) return Fail(status);
    const auto id = sampler->Sample(logits);
    if (!id.ok()) return Fail(id.status());
    bool stop = false;
    for (const int32_t s : tokenizer.stop_ids()) stop = stop || s == *id;
    if (stop) break;
    std::fputs(stream.Push(*id).c_str(), stdout);
    std::fflush(stdout);
    next = {*id};
  }
  std::printf("%s\n", stream.Finish().c_str());
}

// glint bench-serve: load on a server, how fast its answers come, and whether they are those that it gives alone.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "cli/interrupt.h"
#include "cli/load_report.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cli/units.h"
#include "serve/endpoints.h"
#include "serve/http.h"
#include "serve/load.h"
#include "serve/service.h"

namespace glint::cli {
namespace {

struct BenchServeOptions {
  ModelChoice model;
  std::optional<std::string> url, name, key, users, prompt, answer, solo;
  std::optional<int64_t> conversations, turns, shared, vocab, context;
  std::optional<double> rate, cancel, temperature, patience_s;
  std::optional<uint64_t> seed;
  bool ids = false, json = false;
  serve::LoadOptions load;           // what Check made of them
  std::vector<int64_t> user_counts;  // a run each
};

// "20" or "10-40".
Status ParseRange(std::string_view option, const std::string& text, serve::LoadRange* range) {
  const size_t dash = text.find('-');
  const auto low = ParseInteger(std::string_view(text).substr(0, dash));
  const auto high = dash == std::string::npos ? low : ParseInteger(std::string_view(text).substr(dash + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > 10'000'000)
    return {Code::kBadInput,
            fmt::format("{}: '{}' is not a length such as 20, or a range such as 10-40", option, text)};
  *range = {*low, *high};
  return {};
}

Status Settle(BenchServeOptions& o) {
  serve::LoadOptions& load = o.load;
  if (o.url) {
    const auto url = serve::ParseHttpUrl(*o.url);
    if (!url.ok()) return {Code::kBadInput, "--url: " + url.status().message()};
    load.url = *url;
  }
  if (o.users && o.rate)
    return {Code::kBadInput, "give --users (each waits for its answer) or --rate, not both"};
  const std::vector<std::string> counts = SplitNames({o.users.value_or("4")});
  for (const std::string& word : counts) {
    const auto users = ParseInteger(word);
    if (!users || *users < 1 || *users > 4096)
      return {Code::kBadInput, fmt::format("--users: '{}' is not a number from 1 to 4096", word)};
    o.user_counts.push_back(*users);
  }
  if (o.user_counts.empty()) return {Code::kBadInput, "--users: the list is empty"};
  load.rate = o.rate.value_or(0);
  load.conversations =
      o.conversations.value_or(4 * *std::max_element(o.user_counts.begin(), o.user_counts.end()));
  load.turns = o.turns.value_or(1), load.shared = o.shared.value_or(0);
  if (o.prompt) {
    if (Status s = ParseRange("--prompt", *o.prompt, &load.prompt); !s.ok()) return s;
  }
  if (o.answer) {
    if (Status s = ParseRange("--answer", *o.answer, &load.answer); !s.ok()) return s;
  }
  const std::string solo = o.solo.value_or("after");
  if (solo != "none" && solo != "before" && solo != "after")
    return {Code::kBadInput, fmt::format("--solo: '{}' is not before, after or none", solo)};
  using Solo = serve::LoadOptions::Solo;
  load.solo = solo == "none" ? Solo::kNone : solo == "before" ? Solo::kBefore : Solo::kAfter;
  load.ids = o.ids || o.vocab.has_value();
  if (load.ids && load.turns > 1)
    return {Code::kBadInput, "--turns: conversations are made of words, not of --ids"};
  load.vocab = static_cast<int32_t>(o.vocab.value_or(256));
  load.cancel = o.cancel.value_or(0), load.temperature = o.temperature.value_or(0),
  load.seed = o.seed.value_or(1);
  load.patience = std::chrono::milliseconds(static_cast<int64_t>(o.patience_s.value_or(120) * 1e3));
  load.model = o.name.value_or("");
  load.api_key = o.key.value_or("");
  if (const char* key = std::getenv("GLINT_API_KEY"); load.api_key.empty() && key != nullptr)
    load.api_key = key;
  return {};
}

// A server of this process: what `glint serve` would be.
class OwnServer {
 public:
  Status Start(const BenchServeOptions& o) {
    auto model = o.model.Open();
    if (!model.ok()) return model.status();
    model_.emplace(*std::move(model));
    serve::ServiceOptions options;
    const int64_t most = model_->context_length() > 0 ? model_->context_length() : INT32_MAX;
    options.scheduler.context = o.context.value_or(std::min<int64_t>(most, 4096));
    options.scheduler.sessions = 256;
    options.scheduler.queue = 1 << 20;
    auto service = serve::Service::Create(*model_, options);
    if (!service.ok()) return service.status();
    service_ = *std::move(service);
    endpoints_.SetService(service_);
    serve::HttpOptions http;
    http.max_connections = 8192, http.handler_threads = 4;
    auto server = serve::HttpServer::Create(std::move(http));
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    server_->Serve([this](const serve::HttpRequest& request, std::shared_ptr<serve::Reply> reply) {
      endpoints_.Handle(request, std::move(reply));
    });
    return {};
  }
  const Model& model() const { return *model_; }
  std::string url() const { return server_->url(); }

 private:
  std::optional<Model> model_;
  std::shared_ptr<serve::Service> service_;
  serve::Endpoints endpoints_;
  std::unique_ptr<serve::HttpServer> server_;  // ends first
};

Result<int> BenchServe(const BenchServeOptions& o) {
  OwnServer own;
  serve::LoadOptions load = o.load;
  std::string server = o.url.value_or("");
  if (!o.url) {
    if (Status s = own.Start(o); !s.ok()) return s;
    server = o.model.Source() + ", served here";
    load.url = *serve::ParseHttpUrl(own.url());
    load.api_key.clear(), load.model.clear();
    if (!own.model().has_tokenizer() || o.model.synthetic)
      load.ids = true;  // no templates of conversations there
    if (load.ids && !o.vocab) load.vocab = static_cast<int32_t>(own.model().usable_vocab());
    if (load.ids && load.turns > 1)
      return Status(Code::kBadInput, "--turns: this model has no conversations: its prompts are ids");
  }
  std::vector<LoadRun> runs;
  for (size_t i = 0; i < (load.rate > 0 ? 1 : o.user_counts.size()); ++i) {
    LoadRun run{"", load, {}};
    run.options.users = o.user_counts[i];
    run.options.seed += i;  // prompts of its own: what the run before left in a cache is no help
    run.name = load.rate > 0 ? Rate(load.rate) + " a second"
                             : Counted(static_cast<uint64_t>(o.user_counts[i]), "user");
    ProgressBar bar(run.name, Unit::kPart);
    auto result = serve::RunLoad(run.options, bar.Callback());
    bar.Finish();
    if (!result.ok()) return result.status();
    run.result = *std::move(result);
    runs.push_back(std::move(run));
  }
  const Status printed = Print(o.json ? LoadJson(runs, server) : LoadTable(runs, server));
  if (!printed.ok()) return printed;
  const LoadSums sums = Sum(runs);
  if (sums.other > 0)
    return Status(Code::kInternal, fmt::format("{} of {} differ from the same alone", sums.other,
                                               Counted(sums.checked, "answer")));
  if (sums.failed > sums.refused || sums.whole + sums.left == 0)
    return Status(Code::kIo, fmt::format("{} failed", Counted(sums.failed, "request")));
  return 0;
}

}  // namespace

Work DeclareBenchServe(Options& options) {
  auto o = std::make_shared<BenchServeOptions>();
  options.Group("Server");
  options.Value(
      "--url", "URL", &o->url,
      "A server that speaks the OpenAI API, such as http://127.0.0.1:8080; without it -m is served here");
  options.Value("--name", "NAME", &o->name,
                "What it calls the model; without it the first that /v1/models names");
  options.Value("--api-key", "KEY", &o->key, "Its key; without it $GLINT_API_KEY");
  options.Value("--patience", "S", &o->patience_s, 0.1, 86400,
                "Seconds that it may say nothing before a request has failed; without it 120");
  options.Group("Load");
  options.Value(
      "--users", "N,...", &o->users,
      "Users who ask again when they have their answer; a run for each number of a list. Without it 4");
  options.Value(
      "--rate", "R", &o->rate, 1e-6, 1e6,
      "In place of users: conversations that begin in a second, at random (Poisson), whether or not answers "
      "come. Times count from when one was due");
  options.Value("--conversations", "N", &o->conversations, 1, 10'000'000,
                "How many in a run; without it 4 for each of the most users");
  options.Value("--turns", "N", &o->turns, 1, 10'000,
                "Requests of a conversation, each with those before it and their answers; without it 1");
  options.Value("--prompt", "A-B", &o->prompt, "Words of a message, drawn from A to B; without it 10-40");
  options.Value("--answer", "A-B", &o->answer,
                "Tokens of an answer at most, drawn from A to B; without it 16-64");
  options.Value("--shared", "N", &o->shared, 0, 10'000'000,
                "Words of a system prompt that all conversations begin with; without it none");
  options.Value("--cancel", "SHARE", &o->cancel, 0, 1,
                "Share of answers that are left in the middle; without it 0");
  options.Value("--temp", "T", &o->temperature, 0, 2,
                "Temperature; above 0 each request has a seed of its own. Without it 0");
  options.Value("--seed", "N", &o->seed, "Of all that is drawn: the same load again. Without it 1");
  options.Flag("--ids", &o->ids,
               "Random token ids in place of words, through /v1/completions: lengths are exact");
  options.Value("--vocab", "N", &o->vocab, 1, INT32_MAX,
                "Ids are below it; implies --ids. Without it 256, or all of -m");
  options.Value(
      "--solo", "WHEN", &o->solo,
      "When each request is asked once more with nothing else running, to compare: before, after or none. "
      "Without it after");
  options.Flag("--json", &o->json, "As JSON");
  o->model.DeclareSource(options);
  options.Value("--ctx", "N", &o->context, 2, INT32_MAX,
                "Tokens that a sequence has room for where -m is served here");
  o->model.DeclareLevers(options);
  options.Notes(
      "Prints answers, tokens per second, the times to the first token and between tokens, and how many "
      "answers are "
      "those that the server gives alone. Exit code 1 if one differs, or fails with anything but 429 and "
      "503.");
  options.Examples(
      {"glint bench-serve --users 1,2 --conversations 2 --answer 4",
       "glint bench-serve --rate 100 --conversations 4 --answer 4 --shared 20 --cancel 0.5 --json",
       "glint bench-serve --users 2 --conversations 2 --turns 2 --answer 4 --temp 0.8 --solo before"});
  options.Check([o]() -> Status {
    if (o->url && (o->model.path || o->model.synthetic || o->context))
      return {Code::kBadInput,
              "--url is a server with its own model: -m, --synthetic and --ctx are not for it"};
    if (o->name == "") return {Code::kBadInput, "--name: the name is empty"};
    if (o->key == "") return {Code::kBadInput, "--api-key: the key is empty"};
    return Settle(*o);
  });
  return [o] { return BenchServe(*o); };
}

}  // namespace glint::cli

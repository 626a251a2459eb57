// glint run: continues a text, or answers one question.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/session_option.h"
#include "cli/subcommand.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

// Without a tokenizer, or with random weights, nothing says "stop", and nobody reads on for long.
constexpr int64_t kTokensWithoutEnd = 32;

struct RunOptions {
  ModelChoice model;
  SamplingChoice sampling;
  std::optional<std::string> prompt, file, ids, system, think, session;
  std::optional<int64_t> max_tokens, context;
  bool chat = false, special = false, ignore_stop = false, json = false, reasoning = false, check = false;

  bool HasText() const { return prompt || file; }
};

Result<std::string> PromptText(const RunOptions& o) {
  auto text = ReadText(o.prompt, o.file, "prompt");
  if (!text.ok()) return text;
  // The end of the last line is the file's, not the text's: a story goes on in the same line.
  if (!o.prompt && text->ends_with('\n')) text->pop_back();
  if (!o.prompt && text->ends_with('\r')) text->pop_back();
  if (text->empty()) return Status(Code::kBadInput, "the prompt is empty");
  return text;
}

Result<std::vector<int32_t>> PromptIds(const RunOptions& o, const Model& model) {
  if (o.ids) {
    auto ids = ParseIds(*o.ids);
    if (ids.ok() && ids->empty()) return Status(Code::kBadInput, "--ids: the list is empty");
    return ids;
  }
  if (o.model.synthetic && !o.HasText() && !o.chat) return std::vector<int32_t>{0};
  if (!model.has_tokenizer()) {
    return Status(Code::kBadInput,
                  fmt::format("{} has no tokenizer: give token ids with --ids", model.name()));
  }
  auto text = PromptText(o);
  if (!text.ok()) return text.status();
  if (!o.chat) {
    auto ids = model.tokenizer().Encode(*text, o.special);
    if (ids.empty()) return Status(Code::kBadInput, "the prompt is empty");
    return ids;
  }
  std::vector<Message> messages;
  if (o.system) messages.push_back(MakeMessage(Role::kSystem, *o.system));
  messages.push_back(MakeMessage(Role::kUser, *text));
  return model.tokenizer().EncodeChat(messages, WithEffort(o.think.value_or("")));
}

// What --session holds, and the prompt that goes on with it.
struct Resumed {
  std::optional<Session> session;  // none if there is no file yet
  KeptWords words;
  std::vector<int32_t> prompt;
};

// Of a text: what it had not read yet, then the new prompt. Without one nothing is read from stdin: the text goes on by itself.
Status ResumeText(const RunOptions& o, const Model& model, Resumed& resumed) {
  resumed.prompt = resumed.words.unread;
  if (o.HasText() || o.ids) {
    const auto more = PromptIds(o, model);
    if (!more.ok()) return more.status();
    resumed.prompt.insert(resumed.prompt.end(), more->begin(), more->end());
  }
  if (!resumed.prompt.empty()) return {};
  return {Code::kBadInput, "the text of --session has ended; give a prompt to go on from"};
}

// Of a conversation: all messages and the new one, from where the session stops being the same.
Status ResumeChat(const RunOptions& o, const Model& model, Resumed& resumed) {
  auto& messages = resumed.words.messages;
  if (o.system && !messages.empty())
    return {Code::kBadInput,
            "--system: the conversation of --session has begun; name another file to begin a new one"};
  if (o.think) resumed.words.effort = *o.think;
  auto text = PromptText(o);
  if (!text.ok()) return text.status();
  if (o.system) messages.push_back(MakeMessage(Role::kSystem, *o.system));
  messages.push_back(MakeMessage(Role::kUser, *text));
  const auto parts = model.tokenizer().RenderChat(messages, WithEffort(resumed.words.effort));
  if (!parts.ok()) return parts.status();
  auto way =
      PlanContinuation(model.tokenizer(), *parts, resumed.session->tokens(), resumed.session->Rewindable());
  if (!way.ok()) return way.status();
  resumed.prompt = std::move(way->append);
  return TakeBack(*resumed.session, way->keep);
}

// For a file that is not there yet, the prompt and what is to be kept.
Status BeginSession(const RunOptions& o, const Model& model, Resumed& resumed) {
  resumed.words.conversation = o.chat;
  if (!o.chat) {
    auto prompt = PromptIds(o, model);
    if (!prompt.ok()) return prompt.status();
    resumed.prompt = std::move(*prompt);
    return {};
  }
  auto text = PromptText(o);
  if (!text.ok()) return text.status();
  resumed.words.effort = o.think.value_or("");
  if (o.system) resumed.words.messages.push_back(MakeMessage(Role::kSystem, *o.system));
  resumed.words.messages.push_back(MakeMessage(Role::kUser, *text));
  auto prompt = model.tokenizer().EncodeChat(resumed.words.messages, WithEffort(resumed.words.effort));
  if (!prompt.ok()) return prompt.status();
  resumed.prompt = std::move(*prompt);
  return {};
}

Result<Resumed> Resume(const RunOptions& o, const Model& model) {
  Resumed resumed;
  std::error_code error;
  Status status;
  if (o.session && std::filesystem::exists(*o.session, error)) {
    auto session = LoadSessionFile(model, *o.session, {.context = o.context.value_or(0), .check = o.check},
                                   o.chat, &resumed.words);
    if (!session.ok()) return session.status();
    resumed.session.emplace(std::move(*session));
    // That it can be saved shows better now than when the text is there.
    if (const auto writable = AtomicFile::Create(*o.session); !writable.ok()) return writable.status();
    status = o.chat ? ResumeChat(o, model, resumed) : ResumeText(o, model, resumed);
  } else {
    status = BeginSession(o, model, resumed);
  }
  if (!status.ok()) return status;
  return resumed;
}

// Room for the prompt and what is to come, within what the model was made for.
int64_t ContextFor(const RunOptions& o, const Model& model, int64_t prompt, int64_t max_tokens) {
  if (o.context) return *o.context;
  int64_t wanted = max_tokens >= 0 ? prompt + max_tokens : std::max<int64_t>(4096, prompt + 1024);
  if (o.session) wanted = std::max<int64_t>(4096, wanted);  // it will be continued
  const int64_t made_for = model.context_length() > 0 ? model.context_length() : wanted;
  return std::max(std::min(wanted, made_for), std::min(prompt, made_for));
}

std::string Summary(const Generation& made, const Model& model, uint64_t seed, bool greedy) {
  const uint64_t bytes = model.weight_bytes_per_token();
  const auto tokens = [](uint64_t n) { return Grouped(n) + (n == 1 ? " token" : " tokens"); };
  std::string line =
      fmt::format("prompt {}, {} tokens/s; generated {}", tokens(static_cast<uint64_t>(made.prefilled)),
                  Rate(made.PrefillRate()), tokens(made.ids.size()));
  if (made.decoded > 0) {
    line += fmt::format(", {} tokens/s, {} a token ({} GB/s)", Rate(made.DecodeRate()), Bytes(bytes),
                        Rate(made.DecodeRate() * static_cast<double>(bytes) / 1e9));
  }
  line += "; ";
  switch (made.reason) {
    case StopReason::kStopToken:
      line += "the model ended it";
      break;
    case StopReason::kMaxTokens:
      line += "--max-tokens reached";
      break;
    case StopReason::kContextFull:
      line += "the context is full (--ctx)";
      break;
    case StopReason::kInterrupted:
      line += "interrupted";
      break;
  }
  if (!greedy) line += fmt::format("; seed {}", seed);
  return line + "\n";
}

std::string Json(const RunOptions& o, const Model& model, std::span<const int32_t> prompt,
                 const Generation& made, const SamplerOptions& sampler, const Answer* answer) {
  JsonWriter json;
  json.BeginObject().Member("model", model.name());
  if (answer) {
    json.Member("text", answer->content());
    if (o.chat) json.Member("reasoning", answer->reasoning());
  }
  const auto list = [&](std::string_view key, std::span<const int32_t> ids) {
    json.Key(key).BeginArray(true);
    for (const int32_t id : ids) json.Value(id);
    json.EndArray();
  };
  list("prompt_ids", prompt);
  list("ids", made.ids);
  json.Member("stop_reason", Name(made.reason));
  json.Key("stop_id");
  if (made.stop_id >= 0)
    json.Value(made.stop_id);
  else
    json.Null();
  json.Member("prompt_tokens", static_cast<int64_t>(prompt.size()));
  json.Member("generated_tokens", static_cast<int64_t>(made.ids.size()));
  json.Member("prefill_seconds", made.prefill_seconds)
      .Member("prefill_tokens_per_second", made.PrefillRate());
  json.Member("decode_seconds", made.decode_seconds).Member("decode_tokens_per_second", made.DecodeRate());
  json.Member("weight_bytes_per_token", model.weight_bytes_per_token());
  json.Member("temperature", static_cast<double>(sampler.temperature)).Member("seed", sampler.seed);
  return json.EndObject().Take();
}

// What --session is to hold: the words of `text`, prompt and all, of which the session has read a part, or of the answer.
Status KeepSession(const RunOptions& o, const Session& session, KeptWords words,
                   std::span<const int32_t> text, const Answer* answer, bool asked) {
  if (!o.chat) {
    words.unread = Unread(session, text);
  } else if (asked) {
    words.messages.push_back(MakeMessage(Role::kAssistant, answer->content(), answer->reasoning()));
  } else {
    words.messages.pop_back();
  }
  return SaveSessionFile(session, *o.session, words);
}

Result<int> Run(const RunOptions& o) {
  const auto model = o.model.Open();
  if (!model.ok()) return model.status();
  if (o.chat && !model->has_tokenizer()) {
    return Status(Code::kBadInput,
                  fmt::format("{} has no tokenizer, so no chat; give token ids with --ids", model->name()));
  }
  auto resumed = Resume(o, *model);
  if (!resumed.ok()) return resumed.status();
  const std::vector<int32_t>& prompt = resumed->prompt;
  const auto settings = o.sampling.Resolve(*model);
  if (!settings.ok()) return settings.status();
  auto sampler = Sampler::Create(*settings, model->usable_vocab());
  if (!sampler.ok()) return sampler.status();

  const bool text_out = model->has_tokenizer();
  const int64_t max_tokens = o.max_tokens.value_or(text_out && !o.model.synthetic ? -1 : kTokensWithoutEnd);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  std::optional<Session>& session = resumed->session;
  if (session) {
    const int64_t room = session->capacity() - session->position();
    if (prompt_tokens > room) {
      return Status(
          Code::kNoRoom,
          fmt::format("the prompt has {} tokens, the session room for {} more; --ctx makes more room",
                      prompt_tokens, room));
    }
  } else {
    const int64_t context = ContextFor(o, *model, prompt_tokens, max_tokens);
    if (prompt_tokens > context) {
      return Status(Code::kNoRoom,
                    fmt::format("the prompt has {} tokens, the context room for {}{}", prompt_tokens, context,
                                o.context ? " (--ctx)" : ", which is what the model was made for"));
    }
    auto made = Session::Create(*model, {.context = context, .check = o.check});
    if (!made.ok()) return made.status();
    session.emplace(std::move(*made));
    if (o.session) {  // the same for a new file
      const Status saved = SaveSessionFile(*session, *o.session, {.conversation = o.chat});
      if (!saved.ok()) return saved;
    }
  }
  std::vector<int32_t> text_ids(session->tokens().begin(), session->tokens().end());
  text_ids.insert(text_ids.end(), prompt.begin(), prompt.end());
  sampler->Observe(text_ids);

  AnswerStyle style = StyleOfStdout();
  style.raw = !o.chat;
  style.silent = o.json;
  style.show_reasoning = style.show_reasoning || o.reasoning;
  std::optional<Answer> answer;
  if (text_out) answer.emplace(model->tokenizer(), prompt, style);
  bool first = true;
  const auto show = [&](int32_t id) -> Status {
    text_ids.push_back(id);
    if (answer) return answer->Push(id);
    if (o.json) return {};
    const std::string separated = fmt::format("{}{}", first ? "" : " ", id);
    first = false;
    return Print(separated);
  };
  GenerateOptions generate;
  generate.max_tokens = max_tokens;
  generate.source = o.model.Source();
  if (text_out && !o.ignore_stop) generate.stop_ids = model->tokenizer().stop_ids();
  // A text that is to go on by itself needs a token that the session has not read.
  std::span<const int32_t> to_read = prompt;
  if (o.session && !o.chat && max_tokens == 0) to_read = to_read.first(to_read.size() - 1);
  const auto made = Generate(*session, *sampler, model->vocab_size(), to_read, generate, show);
  const Answer* const said = answer ? &*answer : nullptr;
  if (!made.ok()) {
    // Nobody reads on; what was made until then is worth keeping. What --check refused is not.
    if (o.session && made.status().code() == Code::kIo)
      (void)KeepSession(o, *session, std::move(resumed->words), text_ids, said, true);
    return made.status();
  }

  Status end;
  if (answer)
    end = answer->Finish();
  else if (!o.json && !first)
    end = Print("\n");
  if (end.ok() && o.json) end = Print(Json(o, *model, prompt, *made, *settings, said));
  if (o.session) {
    // A question that was stopped before its answer began was not asked.
    const bool asked = made->reason != StopReason::kInterrupted || !made->ids.empty();
    const Status saved = KeepSession(o, *session, std::move(resumed->words), text_ids, said, asked);
    if (end.ok()) end = saved;
  }
  if (!end.ok()) return end;
  PrintError(Summary(*made, *model, settings->seed, settings->temperature == 0));
  return made->reason == StopReason::kInterrupted ? InterruptExitCode() : 0;
}

}  // namespace

Work DeclareRun(Options& options) {
  auto o = std::make_shared<RunOptions>();
  options.Positional("PROMPT", &o->prompt,
                     "The text to continue, or the question (--chat); without it -f or stdin");
  options.Value("-f,--file", "FILE", &o->file,
                "Read the prompt from a file ('-' is stdin); one newline at its end is dropped");
  DeclareIds(options, &o->ids,
             "The prompt as token ids: 1,2,3 or @FILE (one id, 0, if --synthetic has no prompt)");
  options.Value("-n,--max-tokens", "N", &o->max_tokens, 0, INT32_MAX,
                "Tokens to generate at most; without it until the model ends (32 if it cannot: no tokenizer, "
                "or --synthetic)");
  options.Value("--ctx", "N", &o->context, 1, INT32_MAX,
                "Tokens the context has room for; without it the prompt and -n, or 4096, within what the "
                "model was made for");
  options.files().Reads(&o->file);
  options.files().Writes(&o->session, nullptr, CommandFiles::Form::kSession);
  options.Value("--session", "FILE", &o->session,
                "Go on with the text of this file (with --chat: the conversation), and save it there at the "
                "end; it is made if it "
                "is not there");
  options.Flag("--chat", &o->chat, "The prompt is a user's message: use the model's chat template");
  options.Value("--system", "TEXT", &o->system, "A system message before it (with --chat)");
  options.Value("--think", "EFFORT", &o->think, "Reasoning effort: low, high or max (with --chat)");
  options.Flag("--reasoning", &o->reasoning,
               "Show reasoning also when stdout is not a terminal (with --chat)");
  options.Flag("--special", &o->special,
               "Control tokens spelled in the prompt, such as <|user|>, become those tokens");
  options.Flag("--ignore-stop", &o->ignore_stop, "Go on when the model ends");
  options.Flag("--json", &o->json, "Print one JSON object at the end instead of text as it comes");
  o->sampling.Declare(options);
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Flag("--check", &o->check, "Verify every step of every pass as `glint verify` does; slow");
  options.Notes(
      "Text goes to stdout as it is made, one summary line to stderr. Ctrl-C ends the text (exit code 130). "
      "On a terminal "
      "control characters of the text are shown escaped; a pipe gets them as they are.");
  options.Examples({"glint run \"Once upon a time\"",
                    "glint run --chat \"Tell me a story about a fox.\" -n 200 --seed 7",
                    "echo \"The king said\" | glint run -n 40 --greedy",
                    "glint run --session story.glint \"Once upon a time\" -n 20",
                    "glint run --synthetic tiny --ids 1,2,3 -n 8 --json"});
  options.Check([o]() -> Status {
    if (o->prompt && o->file) return {Code::kBadInput, "give the prompt as an argument or with -f, not both"};
    if (o->ids && o->HasText()) return {Code::kBadInput, "give the prompt as text or with --ids, not both"};
    if (o->ids && o->chat) return {Code::kBadInput, "--chat takes text; --ids are used as they are"};
    if (!o->chat && (o->system || o->think || o->reasoning)) {
      return {Code::kBadInput, "--system, --think and --reasoning belong to --chat"};
    }
    if (o->prompt && o->prompt->empty()) return {Code::kBadInput, "the prompt is empty"};
    if (o->think && *o->think != "low" && *o->think != "high" && *o->think != "max") {
      return {Code::kBadInput, fmt::format("--think: '{}' is not low, high or max", *o->think)};
    }
    return {};
  });
  return [o] { return Run(*o); };
}

}  // namespace glint::cli

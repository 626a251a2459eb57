#include <fmt/core.h>

#include <algorithm>

#include "serve/api_error.h"
#include "serve/openai_common.h"
#include "serve/openai_responses.h"

namespace glint::serve {
namespace {

using Kind = ResponseItem::Kind;

std::string_view StatusWord(FinishReason reason) {
  if (reason == FinishReason::kLength) return "incomplete";
  return reason == FinishReason::kCancelled ? "cancelled" : "completed";
}

std::string_view ErrorCode(int status) {
  if (status == 429) return "rate_limit_exceeded";
  return status >= 500 ? "server_error" : "invalid_prompt";
}

class ResponsesWriter final : public ResponseWriter {
 public:
  ResponsesWriter(ResponsesRequest request, ResponseNames names, KeepResponse keep)
      : request_(std::move(request)), names_(std::move(names)), keep_(std::move(keep)) {
    stream_ = request_.generation.stream;
    for (size_t i = 0; i < request_.input.size(); ++i) {
      ResponseItem& item = request_.input[i];
      if (item.id.empty()) item.id = ItemId(item.kind, names_.id, false, i);
    }
  }

  std::string Begin(const Usage&) override {
    if (!stream_) return {};
    begun_ = true;
    const std::string response = Whole("in_progress", nullptr, {}, MayKeep());
    std::string frames = Lifecycle("response.created", response);
    return frames += Lifecycle("response.in_progress", response);
  }

  std::string Event(size_t, const AnswerEvent& event, const std::vector<TokenLogprob>& tokens) override {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        if (!request_.generation.show_reasoning || event.text.empty()) return {};
        return More(Kind::kReasoning, event.text, "");
      case AnswerEvent::Kind::kText: {
        const std::string logprobs = request_.generation.logprobs ? LogprobEntries(tokens) : "";
        if (event.text.empty() && logprobs.empty()) return {};
        return More(Kind::kMessage, event.text, logprobs);
      }
      case AnswerEvent::Kind::kCallBegin: {
        std::string frames = Open(Kind::kCall);
        items_.back().name = event.text;
        items_.back().call_id = fmt::format("call_{}{:03}", names_.id, event.call);
        return frames + Added();
      }
      case AnswerEvent::Kind::kCallArguments:
        items_.back().text += event.text;
        if (!stream_) return {};
        return Frame("response.function_call_arguments.delta", [&](JsonOut& out) {
          Where(out);
          out.String("delta", event.text);
        });
      case AnswerEvent::Kind::kCallEnd:
        return Close(event.broken ? "incomplete" : "completed");
      case AnswerEvent::Kind::kEnd:
        return {};
    }
    return {};
  }

  std::string Finish(size_t, const Outcome& outcome) override {
    outcome_ = outcome;
    const bool cut = outcome.reason == FinishReason::kLength || outcome.reason == FinishReason::kCancelled;
    std::string frames = Close(cut ? "incomplete" : "completed");
    // An answer that says nothing is an answer: an empty one.
    const bool answered = std::any_of(items_.begin(), items_.end(),
                                      [](const ResponseItem& item) { return item.kind != Kind::kReasoning; });
    if (!answered && !cut) {
      frames += More(Kind::kMessage, "", "");
      frames += Close("completed");
    }
    return frames;
  }

  std::string End() override {
    const std::string_view status = StatusWord(outcome_.reason);
    const std::string output = Items(items_);
    std::string body = Whole(status, &outcome_, output, MayKeep());
    if (MayKeep()) {
      StoredResponse stored;
      stored.id = "resp_" + names_.id;
      stored.previous = request_.previous;
      stored.created = names_.created;
      stored.body = body;
      stored.input = Items(request_.input);
      stored.output = output;
      stored.before = request_.before;
      if (outcome_.reason == FinishReason::kCancelled || !keep_(stored))
        body = Whole(status, &outcome_, output, false);
    }
    if (!stream_) return body;
    return Lifecycle(status == "completed" ? "response.completed" : "response.incomplete", body);
  }

  std::string Fail(const ApiError& error) override {
    if (!stream_) return OpenAiErrorBody(error);
    std::string frames = begun_ ? "" : Begin({});
    JsonOut out;
    out.Begin('{').String("code", ErrorCode(error.status)).String("message", ToUtf8(error.message)).End('}');
    const std::string why = out.Take();
    return frames + Lifecycle("response.failed", Whole("failed", nullptr, Items(items_), false, why));
  }

  std::string KeepAlive(const Progress& progress) override { return stream_ ? CommentFrame(progress) : ""; }

 private:
  bool MayKeep() const { return request_.store && keep_ != nullptr; }

  template <class Write>
  std::string Frame(std::string_view type, const Write& write) {
    JsonOut out;
    out.Begin('{').String("type", type).Integer("sequence_number", int64_t{sequence_++});
    write(out);
    return fmt::format("event: {}\ndata: {}\n\n", type, out.End('}').Take());
  }

  std::string Lifecycle(std::string_view type, std::string_view response) {
    return Frame(type, [&](JsonOut& out) { out.Key("response").Raw(response); });
  }

  // Of the last item.
  void Where(JsonOut& out) const {
    out.String("item_id", items_.back().id).Integer("output_index", uint64_t{items_.size() - 1});
  }
  // Reasoning and messages have one part, the first.
  bool AsSummary() const { return items_.back().kind == Kind::kReasoning && request_.reasoning_as_summary; }
  void WherePart(JsonOut& out) const {
    Where(out);
    out.Integer(AsSummary() ? "summary_index" : "content_index", uint64_t{0});
  }
  std::string_view TextType() const {
    if (items_.back().kind == Kind::kMessage) return "response.output_text";
    return AsSummary() ? "response.reasoning_summary_text" : "response.reasoning_text";
  }
  void WriteThePart(JsonOut& out, bool empty) const {
    const ResponseItem& item = items_.back();
    out.Key("part");
    if (AsSummary()) {
      out.Begin('{').String("type", "summary_text").String("text", empty ? "" : item.summary[0]).End('}');
    } else if (empty) {
      WritePart({item.parts[0].type, ""}, out);
    } else {
      WritePart(item.parts[0], out);
    }
  }

  // Begins an item, closing the one before. Its head is sent by Added, when it is known.
  std::string Open(Kind kind) {
    std::string frames = Close("completed");
    ResponseItem item;
    item.kind = kind;
    item.id = ItemId(kind, names_.id, true, items_.size());
    item.status = "in_progress";
    items_.push_back(std::move(item));
    open_ = true;
    return frames;
  }

  std::string Added() {
    if (!stream_) return {};
    return Frame("response.output_item.added", [&](JsonOut& out) {
      out.Integer("output_index", uint64_t{items_.size() - 1}).Key("item");
      WriteItem(items_.back(), out, false);
    });
  }

  std::string More(Kind kind, const std::string& text, const std::string& logprobs) {
    std::string frames;
    if (!open_ || items_.back().kind != kind) {
      frames = Open(kind);
      ResponseItem& item = items_.back();
      if (kind == Kind::kMessage) item.role = "assistant";
      if (AsSummary()) {
        item.summary.emplace_back();
      } else {
        item.parts.push_back({kind == Kind::kMessage ? "output_text" : "reasoning_text", ""});
      }
      frames += Added();
      if (stream_) {
        frames += Frame(AsSummary() ? "response.reasoning_summary_part.added" : "response.content_part.added",
                        [&](JsonOut& out) {
                          WherePart(out);
                          WriteThePart(out, true);
                        });
      }
    }
    ResponseItem& item = items_.back();
    if (AsSummary()) {
      item.summary[0] += text;
    } else {
      ResponseItem::Part& part = item.parts[0];
      part.text += text;
      part.logprobs += (part.logprobs.empty() || logprobs.empty() ? "" : ",") + logprobs;
    }
    if (!stream_ || text.empty()) return frames;
    return frames + Frame(fmt::format("{}.delta", TextType()), [&](JsonOut& out) {
             WherePart(out);
             out.String("delta", text);
             if (kind == Kind::kMessage) out.Key("logprobs").Raw(fmt::format("[{}]", logprobs));
           });
  }

  std::string Close(std::string_view status) {
    if (!open_) return {};
    open_ = false;
    ResponseItem& item = items_.back();
    item.status = status;
    if (item.kind == Kind::kReasoning && request_.sealed_reasoning)
      item.sealed = SealReasoning(AsSummary() ? item.summary[0] : item.parts[0].text);
    if (!stream_) return {};
    std::string frames;
    if (item.kind == Kind::kCall) {
      frames += Frame("response.function_call_arguments.done", [&](JsonOut& out) {
        Where(out);
        out.String("arguments", item.text).String("name", item.name);
      });
    } else {
      frames += Frame(fmt::format("{}.done", TextType()), [&](JsonOut& out) {
        WherePart(out);
        out.String("text", AsSummary() ? item.summary[0] : item.parts[0].text);
        if (item.kind == Kind::kMessage) out.Key("logprobs").Raw(fmt::format("[{}]", item.parts[0].logprobs));
      });
      frames += Frame(AsSummary() ? "response.reasoning_summary_part.done" : "response.content_part.done",
                      [&](JsonOut& out) {
                        WherePart(out);
                        WriteThePart(out, false);
                      });
    }
    return frames + Frame("response.output_item.done", [&](JsonOut& out) {
             out.Integer("output_index", uint64_t{items_.size() - 1}).Key("item");
             WriteItem(item, out);
           });
  }

  static std::string Items(const std::vector<ResponseItem>& items) {
    JsonOut out;
    out.Begin('[');
    for (const ResponseItem& item : items) WriteItem(item, out);
    return out.End(']').Take();
  }

  // The response object. `outcome` null: not complete.
  std::string Whole(std::string_view status, const Outcome* outcome, std::string_view output, bool kept,
                    std::string_view error = "null") const {
    JsonOut out;
    out.Begin('{')
        .String("id", "resp_" + names_.id)
        .String("object", "response")
        .Integer("created_at", names_.created);
    out.String("status", status).Key("background").Bool(false);
    if (outcome != nullptr && status == "completed") {
      const Timings& t = outcome->timings;
      out.Integer("completed_at",
                  names_.created + static_cast<int64_t>((t.queue_ms + t.prefill_ms + t.decode_ms) / 1000));
    } else {
      out.Null("completed_at");
    }
    out.Key("error").Raw(error).Key("incomplete_details");
    if (status == "incomplete") {
      out.Begin('{').String("reason", "max_output_tokens").End('}');
    } else {
      out.Null();
    }
    out.String("model", names_.model).Key("output").Raw(output.empty() ? "[]" : output);
    for (const auto& [key, json] : request_.echo) out.Key(key).Raw(json);
    out.Key("store").Bool(kept).Key("usage");
    if (outcome == nullptr) return out.Null().End('}').Take();
    const Usage& usage = outcome->usage;
    out.Begin('{').Integer("input_tokens", usage.prompt).Key("input_tokens_details").Begin('{');
    out.Integer("cached_tokens", usage.cached).Integer("cache_write_tokens", uint64_t{0}).End('}');
    out.Integer("output_tokens", usage.completion).Key("output_tokens_details").Begin('{');
    out.Integer("reasoning_tokens", usage.reasoning).End('}');
    out.Integer("total_tokens", usage.prompt + usage.completion).End('}').Key("timings");
    WriteTimings(*outcome, out);
    return out.End('}').Take();
  }

  ResponsesRequest request_;
  ResponseNames names_;
  KeepResponse keep_;
  bool stream_ = false;
  bool begun_ = false;
  bool open_ = false;  // the last item
  std::vector<ResponseItem> items_;
  Outcome outcome_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ResponseWriter> MakeOpenAiResponsesWriter(ResponsesRequest request, ResponseNames names,
                                                          KeepResponse keep) {
  return std::make_unique<ResponsesWriter>(std::move(request), std::move(names), std::move(keep));
}

}  // namespace glint::serve

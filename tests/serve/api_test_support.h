// For the tests of the APIs: requests in a line, and answers as lists of events.
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "serve/generation.h"

namespace glint::serve {

inline RequestLimits TestLimits() {
  RequestLimits limits;
  limits.vocab_size = 1000;
  return limits;
}

// A body that is refused, and how. `message`: a part of it.
struct Refusal {
  std::string body;
  std::string param;
  std::string code;
  std::string message;
};

template <class Parse>
void ExpectRefusals(Parse parse, const std::vector<Refusal>& refusals) {
  for (const Refusal& r : refusals) {
    SCOPED_TRACE(r.body);
    const Parsed<GenerationRequest> parsed = parse(r.body, TestLimits());
    const auto* error = std::get_if<ApiError>(&parsed);
    if (error == nullptr) {
      ADD_FAILURE() << "accepted";
      continue;
    }
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, r.param);
    EXPECT_EQ(error->code, r.code);
    EXPECT_NE(error->message.find(r.message), std::string::npos) << error->message;
  }
}

template <class Parse>
GenerationRequest Accept(Parse parse, const std::string& body) {
  Parsed<GenerationRequest> parsed = parse(body, TestLimits());
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << "\nrefused: " << error->message;
    return {};
  }
  return std::get<GenerationRequest>(std::move(parsed));
}

inline AnswerEvent Of(AnswerEvent::Kind kind, std::string text, size_t call = 0) {
  AnswerEvent event;
  event.kind = kind;
  event.text = std::move(text);
  event.call = call;
  return event;
}
inline AnswerEvent Reasoning(std::string text) { return Of(AnswerEvent::Kind::kReasoning, std::move(text)); }
inline AnswerEvent Text(std::string text) { return Of(AnswerEvent::Kind::kText, std::move(text)); }
inline std::vector<AnswerEvent> Call(size_t call, std::string name, std::vector<std::string> pieces) {
  std::vector<AnswerEvent> events{Of(AnswerEvent::Kind::kCallBegin, std::move(name), call)};
  for (std::string& piece : pieces)
    events.push_back(Of(AnswerEvent::Kind::kCallArguments, std::move(piece), call));
  events.push_back(Of(AnswerEvent::Kind::kCallEnd, "", call));
  return events;
}

inline ResponseNames TestNames() { return {"X1", 1700000000, "glm", "fp"}; }

// All that a response of one choice sends.
inline std::string Written(ResponseWriter& writer, const std::vector<AnswerEvent>& events,
                           const Outcome& outcome) {
  std::string all = writer.Begin(outcome.usage);
  for (const AnswerEvent& event : events) all += writer.Event(0, event, {});
  all += writer.Finish(0, outcome);
  return all + writer.End();
}

// What calls returned, in the order of the calls: operands of + may be called in any.
inline std::string InOrder(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

inline Outcome TestOutcome(FinishReason reason = FinishReason::kStop, std::string stop = "") {
  return {reason, std::move(stop), {10, 4, 7, 2}, {0.5, 20, 30.25}};
}

}  // namespace glint::serve

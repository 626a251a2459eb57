#include "serve/api_error.h"

#include <fmt/core.h>

#include "serve/json_out.h"

namespace glint::serve {
namespace {

std::string_view OpenAiType(int status) {
  if (status == 403) return "insufficient_permissions";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string_view AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

JsonOut& StringOrNull(JsonOut& out, std::string_view key, std::string_view text) {
  return text.empty() ? out.Null(key) : out.String(key, ToUtf8(text));
}

}  // namespace

std::string OpenAiErrorBody(const ApiError& error) {
  JsonOut out;
  out.Begin('{').Key("error").Begin('{').String("message", ToUtf8(error.message));
  out.String("type", OpenAiType(error.status));
  StringOrNull(out, "param", error.param);
  StringOrNull(out, "code", error.code);
  return out.End('}').End('}').Take();
}

std::string AnthropicErrorBody(const ApiError& error, std::string_view request_id) {
  JsonOut out;
  out.Begin('{').String("type", "error").Key("error").Begin('{');
  out.String("type", AnthropicType(error.status)).String("message", ToUtf8(error.message)).End('}');
  StringOrNull(out, "request_id", request_id);
  return out.End('}').Take();
}

ApiError UnknownModel(std::string_view model) {
  return {404, fmt::format("The model '{}' does not exist here; /v1/models lists those that do.", model),
          "model", "model_not_found"};
}

ApiError OpenAiContextOverflow(uint64_t prompt, uint64_t wanted, uint64_t context) {
  return {400,
          fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens "
                      "({} in the messages, {} "
                      "in the completion). Please reduce the length of the messages or completion.",
                      context, prompt + wanted, prompt, wanted),
          "messages", "context_length_exceeded"};
}

ApiError AnthropicContextOverflow(uint64_t prompt, uint64_t wanted, uint64_t context) {
  if (prompt >= context)
    return {400, fmt::format("prompt is too long: {} tokens > {} maximum", prompt, context)};
  return {400, fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input "
                           "length or `max_tokens` "
                           "and try again",
                           prompt, wanted, context)};
}

ApiError Overloaded(uint32_t retry_after_s) {
  return {429, fmt::format("All places are taken. Please try again in {} s.", retry_after_s), "",
          "rate_limit_exceeded", retry_after_s};
}

ApiError FromStatus(const Status& status, std::string_view param) {
  switch (status.code()) {
    case Code::kBadInput:
    case Code::kBadFile:
    case Code::kUnsupported:
      return {400, status.message(), std::string(param), "invalid_value"};
    default:
      return {500, status.message()};
  }
}

}  // namespace glint::serve

#include "grammar/formats.h"

#include <fmt/core.h>

namespace glint::grammar {
namespace {

// RFC 3339, from the year 1 on (a year 0 is refused by many readers). The 29th of February is there in leap years alone; leap seconds are not.
constexpr std::string_view kDate =
    "(?:(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3["
    "01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";

std::string HostName() { return fmt::format("{}(?:\\.{})*", kLabel, kLabel); }

std::string Ipv4() {
  const std::string_view byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return fmt::format("{}(?:\\.{}){{3}}", byte, byte);
}

// RFC 4291, 2.2, forms 1 and 2.
std::string Ipv6() {
  const std::string_view group = "[0-9a-fA-F]{1,4}";
  std::string out = fmt::format("(?:{}:){{7}}{}", group, group);
  for (int before = 0; before <= 7; ++before) {
    out += "|";
    if (before > 0) out += fmt::format("{}(?::{}){{{}}}", group, group, before - 1);
    out += "::";
    if (before < 7) out += fmt::format("(?:{}(?::{}){{0,{}}})?", group, group, 6 - before);
  }
  return "(?:" + out + ")";
}

// RFC 3986: a scheme, and then only characters and escapes that may stand there.
std::string Uri() {
  const std::string_view path = "(?:[A-Za-z0-9._~:/@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";
  const std::string_view query = "(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";
  return fmt::format("[a-zA-Z][a-zA-Z0-9+.-]*:{}+(?:\\?{}*)?(?:#{}*)?", path, query, query);
}

std::string Email() {
  const std::string_view atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return fmt::format("{}(?:\\.{})*@{}", atom, atom, HostName());
}

constexpr std::string_view kDuration =
    "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
    "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|"
    "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))";

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format) {
  std::string body;
  if (format == "date") {
    body = kDate;
  } else if (format == "time") {
    body = kTime;
  } else if (format == "date-time") {
    body = fmt::format("{}T{}", kDate, kTime);
  } else if (format == "duration") {
    body = kDuration;
  } else if (format == "uuid") {
    body = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  } else if (format == "ipv4") {
    body = Ipv4();
  } else if (format == "ipv6") {
    body = Ipv6();
  } else if (format == "hostname") {
    body = HostName();
  } else if (format == "email") {
    body = Email();
  } else if (format == "uri") {
    body = Uri();
  } else {
    return std::nullopt;
  }
  return "^(?:" + body + ")$";
}

}  // namespace glint::grammar

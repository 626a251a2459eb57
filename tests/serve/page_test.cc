// The chat page: how it is sent, and (page_test.py) what it does in a real Chromium.
#include "serve/page.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace glint::serve {
namespace {

namespace fs = std::filesystem;

// What was sent, for a look at it.
class Kept final : public Reply {
 public:
  void Send(int sent_status, HttpHeaders sent_headers, std::string sent_body) override {
    status = sent_status, headers = std::move(sent_headers), body = std::move(sent_body);
  }
  bool Start(int, HttpHeaders) override { return false; }
  bool Write(std::string_view) override { return false; }
  void Finish() override {}
  size_t Backlog() const override { return 0; }
  bool Gone() const override { return false; }
  void OnGone(std::function<void()>) override {}

  int status = 0;
  HttpHeaders headers;
  std::string body;
};

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Page, IsSentOnceAndThenByItsTag) {
  Kept first;
  HttpRequest request;
  request.method = "GET", request.path = "/";
  SendPage(request, first);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, PageText());
  EXPECT_EQ(first.headers, PageHeaders());
  for (const auto& [tag, status] :
       {std::pair(std::string(PageTag()), 304), std::pair("\"x\", W/" + std::string(PageTag()), 304),
        std::pair(std::string("*"), 304), std::pair(std::string("\"x\""), 200),
        std::pair(std::string(), 200)}) {
    SCOPED_TRACE(tag);
    request.headers = {{"if-none-match", tag}};
    Kept again;
    SendPage(request, again);
    EXPECT_EQ(again.status, status);
    EXPECT_EQ(again.body.empty(), status == 304);
  }
}

// All of it is in one document. What could fetch or run something else has no way into it; the browser's own view of that is the test
// below.
TEST(Page, NamesNothingOutsideItself) {
  const std::string text(PageText());
  for (const char* never :
       {"<link rel=\"stylesheet", "src=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML",
        "document.write", "eval(", "new Function", "@STYLE@", "@SCRIPT@"}) {
    EXPECT_EQ(text.find(never), std::string::npos) << never;
  }
}

// In CI the whole browser is there; elsewhere this skips and says what is missing. GLINT_PAGE_PICTURES: a folder for pictures of the page.
TEST(Page, WorksInABrowser) {
  if (std::string_view(GLINT_PYTHON).empty()) GTEST_SKIP() << "GLINT_PYTHON is not set: no Playwright";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "nothing of the page is compiled: it was tested without sanitizers";
#endif
  const fs::path folder = fs::temp_directory_path() / ("glint_page_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "page.html", std::ios::binary) << PageText();
  std::ofstream headers(folder / "headers", std::ios::binary);
  for (const auto& [name, value] : PageHeaders()) headers << name << ": " << value << "\n";
  headers.close();
  const std::string log = (folder / "log").string();
  const std::string command =
      "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/serve/page_test.py' '" + folder.string() +
      "' '" GLINT_SOURCE_DIR "/src/serve/page' '" GLINT_PROGRAM "' >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string said = Read(log);
  fs::remove_all(folder);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << said;
  EXPECT_EQ(status, 0) << said;
}

}  // namespace
}  // namespace glint::serve

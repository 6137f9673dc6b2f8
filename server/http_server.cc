#include "skrull/server/http_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "civetweb.h"

namespace skrull {
namespace {

// A request is a few lines, so that a client that takes longer is broken, or
// wants to keep the threads from others.
constexpr char kRequestMilliseconds[] = "5000";
// One a scraper, one a browser, and some beside those that dawdle.
constexpr char kThreads[] = "4";

// Connects to `address` and hangs up.
void Knock(const std::string& address) {
  const size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.substr(0, colon).c_str(),
                    address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return;
  }
  const int fd =
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    [[maybe_unused]] const int ignored =
        ::connect(fd, found->ai_addr, found->ai_addrlen);
    ::close(fd);
  }
  ::freeaddrinfo(found);
}

// What clients do wrong is theirs to know.
int LogNothing(const mg_connection* /*connection*/, const char* /*message*/) {
  return 1;
}

void Send(const HttpResponse& response, bool with_body,
          mg_connection* connection) {
  mg_response_header_start(connection, response.status);
  const auto add = [&](const std::string& name, const std::string& value) {
    mg_response_header_add(connection, name.c_str(), value.c_str(),
                           static_cast<int>(value.size()));
  };
  add("Content-Type", response.content_type);
  add("Content-Length", std::to_string(response.body.size()));
  add("Connection", "close");
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  mg_response_header_send(connection);
  if (with_body && !response.body.empty()) {
    mg_write(connection, response.body.data(), response.body.size());
  }
}

HttpResponse PlainText(int status, const std::string& text) {
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .body = text + "\n"};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(
    const std::string& address, std::map<std::string, Page> pages) {
  static std::once_flag initialized;
  std::call_once(initialized, [] { mg_init_library(0); });
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(pages)));
  const absl::Status status = server->Listen(address);
  if (!status.ok()) return status;
  return server;
}

absl::Status HttpServer::Listen(const std::string& address) {
  const char* const options[] = {
      "listening_ports",    address.c_str(),      "num_threads", kThreads,
      "request_timeout_ms", kRequestMilliseconds, nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = OnRequest;
  callbacks.log_message = LogNothing;
  char problem[256] = "";
  mg_init_data init = {};
  init.callbacks = &callbacks;
  init.user_data = this;
  init.configuration_options = const_cast<const char**>(options);
  mg_error_data error = {};
  error.text = problem;
  error.text_buffer_size = sizeof(problem);
  context_ = mg_start2(&init, &error);
  mg_server_port port = {};
  if (context_ == nullptr || mg_get_server_ports(context_, 1, &port) != 1) {
    return absl::UnavailableError("cannot serve metrics on " + address +
                                  " (is it in use?): " + problem);
  }
  address_ = WithPort(address, port.port);
  return absl::OkStatus();
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  // The listener looks up only every 2 s, or when someone connects.
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    mg_stop(context_);
    stopped = true;
  });
  while (!stopped) {
    Knock(address_);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const auto* const self = static_cast<const HttpServer*>(request.user_data);
  const std::string method = request.request_method;
  const HttpResponse response = self->Respond(
      method, request.local_uri == nullptr ? "" : request.local_uri);
  Send(response, method != "HEAD", connection);
  return response.status;
}

HttpResponse HttpServer::Respond(const std::string& method,
                                 const std::string& path) const {
  if (method != "GET" && method != "HEAD") {
    HttpResponse response = PlainText(405, "only GET and HEAD");
    response.headers = {{"Allow", "GET, HEAD"}};
    return response;
  }
  const auto page = pages_.find(path);
  if (page == pages_.end()) return PlainText(404, "no such page");
  // Memory can run out; that ends the request, not the daemon.
  try {
    return page->second();
  } catch (const std::exception& exception) {
    return PlainText(500, exception.what());
  }
}

std::string WithPort(const std::string& address, int port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.starts_with("unix:")) {
    return address;
  }
  return address.substr(0, colon + 1) + std::to_string(port);
}

}  // namespace skrull

// A small HTTP server for pages that a daemon makes about itself: GET and HEAD,
// no bodies, no files, no connections that stay.
#ifndef SKRULL_SERVER_HTTP_SERVER_H_
#define SKRULL_SERVER_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

struct mg_connection;
struct mg_context;

namespace skrull {

struct HttpResponse {
  int status = 200;
  std::string content_type = {};
  std::string body = {};
  // Name and value of further headers.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class HttpServer {
 public:
  // Makes a page; called on threads of the server, by several at once.
  using Page = std::function<HttpResponse()>;

  // Listens on `address`, HOST:PORT; port 0 picks a free one. `pages` are by
  // path; any other is answered with 404, and a method but GET and HEAD with
  // 405. Errors: UNAVAILABLE, naming the address, when it cannot be listened
  // on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(
      const std::string& address, std::map<std::string, Page> pages);
  // Waits for the pages that are being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // HOST:PORT, with the port that was picked.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(std::map<std::string, Page> pages)
      : pages_(std::move(pages)) {}

  absl::Status Listen(const std::string& address);
  static int OnRequest(mg_connection* connection);
  HttpResponse Respond(const std::string& method,
                       const std::string& path) const;

  const std::map<std::string, Page> pages_;
  std::string address_;
  mg_context* context_ = nullptr;  // null until Listen succeeds
};

// `address` with its port replaced.
std::string WithPort(const std::string& address, int port);

}  // namespace skrull

#endif  // SKRULL_SERVER_HTTP_SERVER_H_

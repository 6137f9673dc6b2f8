#include "skrull/server/status/status_page.h"

#include <openssl/evp.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/util/time_util.h"
#include "skrull/server/status/html.h"
#include "skrull/server/status/status_page_css.h"

namespace skrull {
namespace {

using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

std::string Ago(const Timestamp& then, const Timestamp& now) {
  return absl::StrCat(AgeText(now.seconds() - then.seconds()), " ago");
}

// A name that others chose: isolated, so that it cannot turn the direction of
// the text around it.
std::string Name(const std::string& text) {
  return absl::StrCat("<bdi>", HtmlEscape(text), "</bdi>");
}

void AppendFact(const char* name, const std::string& value, bool warn,
                std::string* html) {
  absl::StrAppend(html, warn ? "<div class=\"warn\">" : "<div>", "<dt>", name,
                  "</dt><dd>", value, "</dd></div>\n");
}

void AppendHeader(const v1::ServerStatus& status, std::string* html) {
  absl::StrAppend(
      html, "<header><h1>skrulld ", HtmlEscape(status.version()), "</h1>\n",
      status.draining() ? "<span class=\"state warn\">draining</span>\n"
                        : "<span class=\"state good\">serving</span>\n",
      "<span class=\"faint\">up ",
      AgeText(status.now().seconds() - status.start_time().seconds()),
      " · store ", HtmlEscape(status.store()), "</span>\n",
      "<a class=\"push\" href=\"/metrics\">metrics</a></header>\n");
}

void AppendFacts(const v1::ServerStatus& status, std::string* html) {
  absl::StrAppend(html, "<dl class=\"facts\">\n");
  AppendFact("jobs", CountText(status.job_count()), false, html);
  AppendFact("threads busy",
             absl::StrCat(CountText(status.busy_thread_count()), " of ",
                          CountText(status.planning_thread_count())),
             false, html);
  AppendFact("batches queued", CountText(status.queued_batch_count()), false,
             html);
  AppendFact("ranks waiting", CountText(status.waiting_rank_count()), false,
             html);
  AppendFact("plans made", CountText(status.plan_count()), false, html);
  AppendFact("refusals", CountText(status.refusal_count()), false, html);
  AppendFact("step reports", CountText(status.report_count()), false, html);
  AppendFact("out of memory", CountText(status.out_of_memory_count()),
             status.out_of_memory_count() > 0, html);
  absl::StrAppend(html, "</dl>\n");
}

void AppendJob(const v1::JobStatus& job, const Timestamp& now,
               std::string* html) {
  const auto cell = [&](const char* label, const std::string& value) {
    absl::StrAppend(html, "<td data-label=\"", label, "\">", value, "</td>");
  };
  absl::StrAppend(html, "<tr><td class=\"name\">", Name(job.name()), "</td>");
  cell("owner", job.owner().empty() ? "–" : Name(job.owner()));
  cell("generation", CountText(job.generation()));
  cell("epoch", CountText(job.calibration_epoch()));
  cell("ranks", CountText(job.rank_count()));
  cell("bucket", CountText(job.bucket_size_tokens()));
  cell("plans", CountText(job.plan_count()));
  cell("reports", CountText(job.report_count()));
  cell("out of memory", CountText(job.out_of_memory_count()));
  const bool planned = job.has_last_plan();
  cell("last step", planned ? CountText(job.last_plan().step()) : "–");
  cell("predicted",
       planned ? SecondsText(job.last_plan().predicted_seconds()) : "–");
  cell("planned", planned ? Ago(job.last_plan().time(), now) : "–");
  absl::StrAppend(html, "</tr>\n");
}

void AppendJobs(const v1::ServerStatus& status, std::string* html) {
  absl::StrAppend(html, "<h2>Jobs</h2>\n");
  if (status.jobs().empty()) {
    absl::StrAppend(html, "<p class=\"faint\">No job is registered.</p>\n");
    return;
  }
  absl::StrAppend(
      html,
      "<table><thead><tr><th>job</th><th>owner</th><th>generation</th>"
      "<th>epoch</th><th>ranks</th><th>bucket</th><th>plans</th>"
      "<th>reports</th><th>out of memory</th><th>last step</th>"
      "<th>predicted</th><th>planned</th></tr></thead><tbody>\n");
  for (const v1::JobStatus& job : status.jobs()) {
    AppendJob(job, status.now(), html);
  }
  absl::StrAppend(html, "</tbody></table>\n");
  if (status.job_count() > status.jobs_size()) {
    absl::StrAppend(html, "<p class=\"faint\">",
                    CountText(status.job_count() - status.jobs_size()),
                    " more.</p>\n");
  }
}

// One bar a rank, in units of which a bar is 10 wide and a full one 100 high.
void AppendLoad(const v1::PlanStatus& plan, std::string* html) {
  constexpr int kPitch = 12;
  constexpr int kWidth = 10;
  constexpr int kMinBars = 16;  // wide enough for few ranks not to be blocks
  const int bars = std::max(plan.rank_load_size(), kMinBars);
  absl::StrAppend(html, "<svg class=\"load\" role=\"img\" viewBox=\"0 0 ",
                  bars * kPitch,
                  " 100\" preserveAspectRatio=\"none\"><title>load of the "
                  "ranks</title>\n");
  for (int rank = 0; rank < plan.rank_load_size(); ++rank) {
    const double load =
        std::clamp<double>(static_cast<double>(plan.rank_load(rank)), 0, 1);
    absl::StrAppendFormat(
        html,
        "<g><title>rank %d: %s</title><rect class=\"track\" x=\"%d\" y=\"0\" "
        "width=\"%d\" height=\"100\"/><rect class=\"rows\" x=\"%d\" y=\"%.1f\" "
        "width=\"%d\" height=\"%.1f\"/></g>\n",
        rank, PercentText(load), rank * kPitch, kWidth, rank * kPitch,
        100 * (1 - load), kWidth, 100 * load);
  }
  absl::StrAppend(html, "</svg>\n");
}

void AppendPlan(const v1::PlanStatus& plan, const Timestamp& now,
                std::string* html) {
  const auto fact = [&](const char* name, const std::string& value) {
    absl::StrAppend(html, "<div><dt>", name, "</dt><dd>", value,
                    "</dd></div>\n");
  };
  absl::StrAppend(html, "<article class=\"plan\"><h3>", Name(plan.job()),
                  " · step ", CountText(plan.step()));
  if (plan.attempt() > 0) {
    absl::StrAppend(html, " · attempt ", CountText(plan.attempt()));
  }
  absl::StrAppend(
      html, "</h3>\n<p>", HtmlEscape(v1::Policy_Name(plan.policy())), ", ",
      Ago(plan.time(), now), ", in ",
      SecondsText(static_cast<double>(
                      TimeUtil::DurationToNanoseconds(plan.planning_time())) *
                  1e-9),
      "</p>\n");
  AppendLoad(plan, html);
  const double tokens = static_cast<double>(plan.token_count());
  const double bound = plan.lower_bound_seconds();
  absl::StrAppend(html, "<dl>\n");
  fact("predicted", SecondsText(plan.predicted_seconds()));
  fact("over the bound",
       bound > 0 ? PercentText(plan.predicted_seconds() / bound - 1) : "–");
  fact("rank imbalance", PercentText(plan.rank_imbalance()));
  fact("sequences", CountText(plan.sequence_count()));
  fact("tokens", CountText(plan.token_count()));
  fact("sharded",
       PercentText(
           tokens > 0 ? static_cast<double>(plan.sharded_token_count()) / tokens
                      : 0));
  fact("micro-batches", CountText(plan.micro_batch_count()));
  fact("roll-backs", CountText(plan.roll_back_count()));
  fact("DP imbalance", PercentText(plan.dp_imbalance()));
  absl::StrAppend(html, "</dl></article>\n");
}

void AppendPlans(const v1::ServerStatus& status, std::string* html) {
  absl::StrAppend(html, "<h2>Latest plans</h2>\n");
  if (status.plans().empty()) {
    absl::StrAppend(html, "<p class=\"faint\">None since the start.</p>\n");
    return;
  }
  absl::StrAppend(html,
                  "<p class=\"faint\">Bars: rows of each rank's fullest "
                  "micro-batch, of its bucket; the first 64 ranks.</p>\n"
                  "<div class=\"plans\">\n");
  for (const v1::PlanStatus& plan : status.plans()) {
    AppendPlan(plan, status.now(), html);
  }
  absl::StrAppend(html, "</div>\n");
}

std::string Sha256Base64(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(),
                 nullptr) != 1) {
    return "";  // the browser then leaves the page without style
  }
  return absl::Base64Escape(
      std::string(reinterpret_cast<const char*>(digest), size));
}

}  // namespace

std::string StatusPage(const v1::ServerStatus& status) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta http-equiv=\"refresh\" content=\"10\">\n"
      "<link rel=\"icon\" href=\"data:,\"><title>skrulld</title>\n<style>",
      kStatusPageCss, "</style></head><body>\n");
  AppendHeader(status, &html);
  AppendFacts(status, &html);
  AppendJobs(status, &html);
  AppendPlans(status, &html);
  absl::StrAppend(&html, "<footer>",
                  HtmlEscape(TimeUtil::ToString(status.now())),
                  " · anew every 10 s · <code>skrullctl top</code> shows the "
                  "same</footer>\n</body></html>\n");
  return html;
}

std::vector<std::pair<std::string, std::string>> StatusPageHeaders() {
  static const std::string* const policy = new std::string(absl::StrCat(
      "default-src 'none'; style-src 'sha256-", Sha256Base64(kStatusPageCss),
      "'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'"));
  return {{"Content-Security-Policy", *policy},
          {"Referrer-Policy", "no-referrer"},
          {"X-Frame-Options", "DENY"}};
}

}  // namespace skrull

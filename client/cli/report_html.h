// The page of `skrullctl report`, client/cli/report.html, as the build embeds
// it.
#ifndef SKRULL_CLIENT_CLI_REPORT_HTML_H_
#define SKRULL_CLIENT_CLI_REPORT_HTML_H_

namespace skrull::cli {

// Holds "@SKRULL_REPORT_DATA@" once, where the data goes.
extern const char kReportHtml[];

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_REPORT_HTML_H_

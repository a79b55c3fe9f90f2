// What the elements of both families share: they create a table, and report the errors of its changes.

#ifndef FINGERPOST_CLICK_ELEMENTS_HH
#define FINGERPOST_CLICK_ELEMENTS_HH

#include "routes.hh"
#include <cerrno>
#include <algorithm>
#include <memory>
#include <vector>
#include <click/confparse.hh>
#include <click/error.hh>
#include <click/glue.hh>

namespace fingerpost {

/// Creates a table for lookups on all threads of Click, and removes the argument ENGINE from the configuration.
inline std::unique_ptr<RouteTable> new_table(int family, CLICK_NAME(Vector)<CLICK_NAME(String)> &conf, CLICK_NAME(ErrorHandler) *errh) {
    CLICK_USING_DECLS
    String engine = "auto";
    for (int i = 0; i < conf.size(); i++) {
        String rest = conf[i];
        if (cp_shift_spacevec(rest) != "ENGINE")
            continue;
        engine = cp_shift_spacevec(rest);
        conf.erase(conf.begin() + i--);
    }
    std::unique_ptr<RouteTable> table(new RouteTable(family, engine.c_str(), click_max_cpu_ids()));
    if (!table->is_valid()) {
        errh->error("ENGINE %s: %s", engine.c_str(), table->error().c_str());
        table.reset();
    }
    return table;
}

/// Lists the lines of a `ctrl` without comments and blank lines: Click's own handler never returns from a blank line.
inline std::vector<CLICK_NAME(String)> lines(const CLICK_NAME(String) &conf) {
    CLICK_USING_DECLS
    std::vector<String> lines;
    const String text = cp_uncomment(conf);
    for (const char *start = text.begin(); start < text.end();) {
        const char *end = find(start, text.end(), '\n');
        String rest = text.substring(start, end);
        if (cp_shift_spacevec(rest))
            lines.push_back(text.substring(start, end));
        start = end + 1;
    }
    return lines;
}

/// Reports an error of a change that Click's own code does not report; returns it.
inline int report(const RouteTable &table, int result, CLICK_NAME(ErrorHandler) *errh) {
    if (result < 0 && result != -EEXIST && result != -ENOENT)
        errh->error("%s", table.error().c_str());
    return result;
}

/// Commits what was deferred, or undoes it after an error, which it returns.
inline int finish(RouteTable &table, int result, CLICK_NAME(ErrorHandler) *errh) {
    if (result >= 0)
        return report(table, table.commit(), errh);
    table.rollback();
    return result;
}

} // namespace fingerpost

#endif

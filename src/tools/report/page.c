/* SPDX-License-Identifier: BSD-3-Clause */
/* The frame of a page: style, sections, figures. Colours follow the reader's choice of light or dark. */
#include "tools/report/page.h"
#include "tools/plan/svg.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark;--page:#f4f6f8;--card:#ffffff;--ink:#1c262c;--soft:#4a5963;--line:#d3dade;--bar:#a9cbe4;"
    "--head:#e9eef1;--good:#1b6e3c;--link:#0b5cad}"
    "@media (prefers-color-scheme:dark){:root{--page:#0f1418;--card:#182026;--ink:#e6ecef;--soft:#b2bfc7;--line:#34424b;"
    "--bar:#2f5d80;--head:#222d34;--good:#7fd6a0;--link:#8cc4ff}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif}"
    "main{max-width:1240px;margin:0 auto;padding:20px}"
    "header{padding:8px 0 4px}h1{font-size:26px;margin:0}header p{margin:2px 0;color:var(--soft)}"
    "nav{margin:8px 0 0}nav a{color:var(--link);margin-right:16px}"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 20px;margin:16px 0}"
    "h2{font-size:18px;margin:0 0 10px}h3{font-size:15px;margin:18px 0 6px}"
    "p.note{color:var(--soft);margin:6px 0;max-width:75em}"
    ".figures{display:flex;flex-wrap:wrap;gap:10px 36px;margin:4px 0 12px}"
    ".figure{min-width:120px}.figure .name{color:var(--soft);font-size:13px}.figure .value{font-size:22px;font-weight:600}"
    ".figure .extra{color:var(--soft);font-size:13px}"
    ".wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}"
    "th{text-align:left;background:var(--head);font-weight:600}th,td{padding:4px 12px;border-bottom:1px solid var(--line);"
    "vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}td.w{white-space:nowrap}"
    "tr.best td{font-weight:600;color:var(--good)}"
    ".bar{background:var(--bar);height:14px;border-radius:2px;display:inline-block;vertical-align:middle;min-width:1px}"
    ".track{display:inline-block;width:180px;margin-right:8px}"
    "svg{display:block;max-width:100%;height:auto}svg text{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif}"
    "svg.mp,svg.scroll{max-width:none}"
    ".tl text{fill:var(--ink);font-size:11px}.tl .axis{fill:var(--soft)}.tl .grid{stroke:var(--line)}.tl .row{fill:var(--head)}"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;margin:6px 0;color:var(--soft)}"
    ".legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px}"
    "footer{color:var(--soft);font-size:13px;padding:4px 0 20px}"
    "code{font-size:13px}";

void page_begin(FILE *out, const char *title, const char *version)
{
    fprintf(out,
            "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
            "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'; "
            "img-src data:\">\n"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<link rel='icon' href='data:,'>\n"
            "<meta name='generator' content='mpath_report ");
    plan_put_text(out, version);
    fprintf(out, "'>\n<title>");
    plan_put_text(out, title);
    fprintf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n", style);
}

void page_end(FILE *out)
{
    fprintf(
        out,
        "<footer>Made by mpath_report. Nothing on this page is loaded from elsewhere; move the mouse over a cell or a "
        "bar for its numbers.</footer>\n</main>\n</body>\n</html>\n");
}

void page_section(FILE *out, const char *id, const char *title)
{
    fprintf(out, "<section id='%s'>\n<h2>", id);
    plan_put_text(out, title);
    fprintf(out, "</h2>\n");
}

void page_section_end(FILE *out)
{
    fprintf(out, "</section>\n");
}

void page_figures(FILE *out)
{
    fprintf(out, "<div class='figures'>\n");
}

void page_figure(FILE *out, const char *name, const char *value, const char *note)
{
    fprintf(out, "<div class='figure'><div class='name'>");
    plan_put_text(out, name);
    fprintf(out, "</div><div class='value'>");
    plan_put_text(out, value);
    fprintf(out, "</div><div class='extra'>");
    plan_put_text(out, note);
    fprintf(out, "</div></div>\n");
}

void page_figures_end(FILE *out)
{
    fprintf(out, "</div>\n");
}

void page_bar(FILE *out, double part, const char *text)
{
    fprintf(out, "<span class='track'><span class='bar' style='width:%.1f%%'></span></span>",
            100 * fmax(0, fmin(part, 1)));
    plan_put_text(out, text);
}

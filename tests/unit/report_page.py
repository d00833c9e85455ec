#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks at a page of mpath_report: report_page.py PAGE SECTION... [--browser PROGRAM] [--contains TEXT]

Well-formed and alone: no script, nothing loaded from elsewhere; these sections; digits that can be read on the colour below them. With a browser:
nothing on its console, no request but for the page, and the contrast of every text as it is shown, light and dark. Prints one line for each
thing that is wrong; status 1 then.
"""
import argparse
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile

READABLE = 4.5  # contrast of small text, WCAG 2 AA
VOID = ("meta", "link", "br")
# These are closed by what follows them.
OPTIONAL = ("td", "th", "tr")
wrong = []


def luminance(rgb):
    parts = [part / 255 for part in rgb]
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def colour(text):
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.texts, self.cells, self.digits = [], [], [], [], 0, 0
        self.below = None

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag in ("script", "iframe", "object", "embed", "img", "image"):
            wrong.append("it has an element " + tag)
        for name, value in attributes:
            if name in ("href", "src", "xlink:href", "action") and not value.startswith(("#", "data:")):
                wrong.append("it loads " + value)
            if name.startswith("on"):
                wrong.append("it has a handler " + name)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        if tag == "rect" and values.get("fill", "").startswith("#"):
            self.below = values["fill"]
        if tag == "g" and values.get("class") == "x":
            self.cells += 1
        if tag == "text" and values.get("class") == "n":
            self.digits += 1
            if self.below is None or contrast(colour(values["fill"]), colour(self.below)) < READABLE:
                wrong.append("digits of %s on %s cannot be read" % (values["fill"], self.below))
        if tag not in VOID and tag not in ("rect", "line", "path") and tag not in OPTIONAL:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in OPTIONAL or tag in ("rect", "line", "path"):
            return
        if not self.open or self.open.pop() != tag:
            wrong.append("</%s> closes nothing" % tag)

    def handle_data(self, data):
        self.texts.append(data)


# Put in the place of the policy that forbids scripts, in a copy: contrast of each text against what is painted below it.
SCRIPT = """<script>
function rgb(text) { const m = text.match(/[0-9.]+/g); return m === null ? null : m.map(Number); }
function lum(c) { const p = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]; }
function contrast(a, b) { const x = lum(a), y = lum(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); }
function below(element) {
  for (let at = element; at !== null; at = at.parentElement) {
    if (at.namespaceURI.endsWith('svg')) {
      const before = at === element ? at.previousElementSibling : null;
      if (before !== null && before.tagName === 'rect' && /^(n|k)$/.test(element.getAttribute('class') || '')) return [rgb(getComputedStyle(before).fill)];
      if (at.tagName === 'svg' && at.classList.contains('mp'))
        return [...at.querySelectorAll('.p,.b')].slice(0, 2).map(e => rgb(getComputedStyle(e).fill));
    } else { const c = rgb(getComputedStyle(at).backgroundColor); if (c !== null && (c.length < 4 || c[3] > 0)) return [c]; }
  }
  return [[255, 255, 255]];
}
let texts = 0, worst = 99, which = '', root = document.documentElement;
for (const element of document.querySelectorAll('body *')) {
  if (/^(style|script|title)$/i.test(element.tagName)) continue;
  if (![...element.childNodes].some(n => n.nodeType === 3 && n.data.trim() !== '')) continue;
  const style = getComputedStyle(element), ink = rgb(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
  for (const ground of below(element)) { texts++; const c = contrast(ink, ground); if (c < worst) { worst = c; which = element.textContent.slice(0, 40); } }
}
root.dataset.found = JSON.stringify({texts, worst, which, dark: matchMedia('(prefers-color-scheme:dark)').matches,
  wide: document.body.scrollWidth > innerWidth + 1, sections: document.querySelectorAll('section').length});
</script></body>"""


def run_browser(program, path, folder, dark):
    log = os.path.join(folder, "net.json")
    command = [program, "--headless", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--window-size=1300,1000", "--enable-logging=stderr",
               "--user-data-dir=" + os.path.join(folder, "profile"), "--log-net-log=" + log, "--dump-dom", "--virtual-time-budget=2000",
               "--blink-settings=preferredColorScheme=%d" % (0 if dark else 1)]
    if os.geteuid() == 0:
        command.append("--no-sandbox")
    # It may be slow beside other work, and a name that is looked for on a network must not decide.
    done = subprocess.run(command + ["file://" + path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False,
                          env=dict(os.environ, DBUS_SESSION_BUS_ADDRESS="disabled:", HOME=folder))
    said = done.stderr.decode(errors="replace")
    for line in said.splitlines():
        if "CONSOLE" in line:
            wrong.append("on the browser's console: " + line)
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            requests = set(re.findall(r'"url":"(\w+:[^"]*)"', file.read()))
    except FileNotFoundError:
        requests = {"none: the browser wrote no log: " + said[-300:]}
    for url in requests:
        if not url.startswith(("file://" + path, "data:", "about:", "chrome:")):
            wrong.append("it asks for " + url)
    return done.stdout.decode(errors="replace")


def look_in_browser(program, path, sections):
    with tempfile.TemporaryDirectory() as folder:
        shown = run_browser(program, path, folder, False)
        if shown.count("<section") != sections:
            wrong.append("the browser shows %d sections of %d" % (shown.count("<section"), sections))
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"<meta http-equiv='Content-Security-Policy'[^>]*>", "", file.read())
        copy = os.path.join(folder, "copy.html")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(text.replace("</body>", SCRIPT))
        for dark in (False, True):
            shown = run_browser(program, copy, folder, dark)
            found = re.search(r'data-found="([^"]*)"', shown)
            if found is None:
                wrong.append("the browser does not say what it shows")
                continue
            found = json.loads(found.group(1).replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
            mode = "dark" if dark else "light"
            if found["dark"] != dark:
                wrong.append("the browser does not turn " + mode)
            if found["worst"] < READABLE or found["texts"] < 50:
                wrong.append("%s: of %d texts '%s' has a contrast of %.2f" % (mode, found["texts"], found["which"], found["worst"]))
            if found["wide"]:
                wrong.append(mode + ": the page is wider than its window")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--browser")
    parser.add_argument("--contains", action="append", default=[])
    parser.add_argument("--cells", type=int, default=0)
    options = parser.parse_args()
    with open(options.page, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    if page.open:
        wrong.append("not closed: " + " ".join(page.open))
    if [name for name in page.ids] != options.sections:
        wrong.append("its sections are " + " ".join(page.ids))
    wrong.extend("no section for the link " + link for link in page.links if link[1:] not in page.ids)
    wrong.extend("it refers to " + url for url in re.findall(r"https?://[^\s'\"<]*", text) if url != "http://www.w3.org/2000/svg")
    shown = " ".join("".join(page.texts).split())
    wrong.extend("it does not say '%s'" % said for said in options.contains if said not in shown)
    if "(null)" in shown:
        wrong.append("it has no word for something")
    if page.cells != options.cells:
        wrong.append("it has %d cells, not %d" % (page.cells, options.cells))
    if "load" in options.sections and page.digits == 0:
        wrong.append("there are no digits")
    if options.browser and not wrong:
        look_in_browser(options.browser, os.path.realpath(options.page), len(options.sections))
    if wrong:
        print("\n".join(wrong[:10]))
    return 1 if wrong else 0


sys.exit(main())

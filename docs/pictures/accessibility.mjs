// Examines saved rooms of the web UI with axe-core, at both widths, in light and dark:
//
//     npm install --prefix build/axe axe-core puppeteer-core
//     node docs/pictures/accessibility.mjs build/axe FOLDER/rooms
//
// FOLDER is a kept recording (take.py --keep). It fails on a violation that is serious or critical, and on a
// page that is wider than its window. Chromium must be on PATH as chromium.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { execFileSync } from "node:child_process";

const [modules, rooms] = process.argv.slice(2).map((each) => path.resolve(each));
const require = createRequire(`${modules}/`);
const puppeteer = require("puppeteer-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const chromium = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();
// Pages are our own, and containers have no sandbox.
const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
let [examined, bad] = [0, 0];
// page.html is the body of an e-mail, which has no title and no landmarks.
const isRoom = (each) => each.endsWith(".html") && each !== "page.html";
for (const file of fs.readdirSync(rooms).filter(isRoom).sort()) {
  // Alone, without what makes it load again.
  const html = fs.readFileSync(path.join(rooms, file), "utf8")
    .replace(/<noscript>.*?<\/noscript>/gs, "").replace(/<script[^>]*src[^>]*><\/script>/g, "");
  for (const width of [1280, 390]) {
    for (const value of ["light", "dark"]) {
      const page = await browser.newPage();
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
      await page.setContent(html);
      await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
      await page.evaluate(axe);
      const { violations } = await page.evaluate((values) => window.axe.run(document, { runOnly: values }), rules);
      const beyond = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        return scrollWidth - clientWidth;
      });
      for (const { impact, id, nodes } of violations) {
        bad += impact === "serious" || impact === "critical";
        console.log(`${file} ${width} ${value}: ${impact} ${id}: ${nodes[0].html.slice(0, 160)}`);
      }
      if (beyond > 0) {
        bad += 1;
        console.log(`${file} ${width} ${value}: ${beyond} pixels wider than its window`);
      }
      examined += 1;
      await page.close();
    }
  }
}
await browser.close();
console.log(`${examined} pages examined, ${bad} with what is serious`);
process.exitCode = bad || !examined ? 1 : 0;

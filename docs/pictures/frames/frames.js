// Lays out saved views at a width of their own, however wide the window is, and says how high that is.

const asked = new URLSearchParams(location.search);
const names = asked.get("views").split(",");
const [width, limit] = ["width", "limit"].map((name) => Number(asked.get(name)));
const main = document.querySelector("main");

const loaded = (frame) => new Promise((done) => frame.addEventListener("load", done, {once: true}));

async function show(name) {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width, height: 100, scrolling: "no", src: `/material/${name}.html`});
  main.append(frame);
  await loaded(frame);
  const {documentElement: root} = frame.contentDocument;
  if (root.scrollWidth > frame.clientWidth) {
    throw new Error(`${name} is ${root.scrollWidth} pixels wide at ${frame.clientWidth}`);
  }
  return [frame, end(root)];
}

// Where a view ends, or the last section of it that ends within the limit.
function end(root) {
  const whole = root.querySelector("body").getBoundingClientRect().bottom + 16;
  if (whole <= limit) return whole;
  if (names.length > 1) return limit;
  const parts = root.querySelectorAll("main > h2, main > h3, main > article, main > .wide");
  const tops = [...parts].map((each) => each.getBoundingClientRect().top - 16);
  return Math.max(...tops.filter((top) => top <= limit && top > limit / 2), 0) || limit;
}

async function draw() {
  main.classList.toggle("several", names.length > 1);
  const frames = [];
  for (const name of names) frames.push(await show(name));
  const highest = Math.max(...frames.map(([, bottom]) => bottom));
  for (const [frame] of frames) frame.height = Math.ceil(highest);
  if (!document.querySelector("link").sheet?.cssRules.length) throw new Error("the style sheet did not come");
  return String(Math.ceil(main.getBoundingClientRect().height));
}

const report = (text) => fetch("/", {method: "POST", body: text});
draw().then(report, (error) => report(`${error}`));

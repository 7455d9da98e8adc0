"use strict";
// The token viewer. Token data lies gzipped in script elements and is unpacked when a response is first looked at.
// Text from the run reaches the page through textContent alone.

const COLUMNS = ["chunk", "place", "step", "group", "sample", "problem", "reward", "status", "truncated", "length", "entropy", "reasoning", "repetition", "kl", "klMax", "outward", "extracted", "reason"];
const SCALE = 1000;
const MISSING = -32768;
const FLAG = { reasoning: 1, above: 2, below: 4, outward: 8 };
const PAGE = 50;
const LARGEST_SHARE = 0.1;
const PAGE_JUMP = 20;
const chunks = new Map();
const state = { viewer: 0, found: [], page: 0, current: null, tokens: null, at: -1, foundAt: new Set(), search: 0 };
const byId = (id) => document.getElementById(id);

// ---- unpacking ----

function chunkOf(id) {
  if (!chunks.has(id)) chunks.set(id, unpack(byId(id).textContent));
  return chunks.get(id);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const body = await new Response(stream).arrayBuffer();
  const size = new DataView(body).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, size)));
  const total = header.lengths.reduce((a, b) => a + b, 0);
  let offset = 4 + size;
  const column = (Type) => {
    const values = new Type(body, offset, total);
    offset += values.byteLength;
    return values;
  };
  const chunk = { header, ids: column(Uint32Array), entropy: column(Uint16Array), surprise: column(Uint16Array), reference: column(Int16Array), update: column(Int16Array), earlier: {} };
  for (const name of header.earlier) chunk.earlier[name] = column(Int16Array);
  chunk.flags = column(Uint8Array);
  return chunk;
}

function tokensOf(chunk, place) {
  const start = chunk.header.lengths.slice(0, place).reduce((a, b) => a + b, 0);
  const end = start + chunk.header.lengths[place];
  const cut = (values) => values.subarray(start, end);
  return {
    length: end - start, roles: chunk.header.roles[place], clipping: chunk.header.clipping[place], text: (i) => chunk.header.vocabulary[chunk.ids[start + i]],
    entropy: cut(chunk.entropy), surprise: cut(chunk.surprise), reference: cut(chunk.reference), update: cut(chunk.update), flags: cut(chunk.flags),
    earlier: Object.fromEntries(Object.entries(chunk.earlier).map(([name, values]) => [name, cut(values)])),
    exact: chunk.header.texts[place], prompt: chunk.header.prompt,
  };
}

function wholeText(tokens) {
  return tokens.exact ?? Array.from({ length: tokens.length }, (_, i) => tokens.text(i)).join("");
}

const present = (value, scale) => (value === MISSING ? null : value / scale);
const hasFlag = (tokens, i, flag) => (tokens.flags[i] & flag) !== 0;

function klAt(tokens, i) {
  const d = present(tokens.reference[i], SCALE);
  return d === null ? null : Math.max(Math.expm1(-Math.max(-20, Math.min(20, d))) + d, 0);
}

function changeAt(tokens, i, since) {
  if (since === "update") return present(tokens.update[i], 2 * SCALE);
  if (since === "reference") return present(tokens.reference[i], SCALE);
  const values = tokens.earlier[since.slice("earlier:".length)];
  return values ? present(values[i], SCALE) : null;
}

// ---- choosing responses ----

function records() { return DATA.viewers[state.viewer].records; }

function index() {
  for (const viewer of DATA.viewers) {
    viewer.records = viewer.rows.map((row) => Object.fromEntries(COLUMNS.map((name, i) => [name, row[i]])));
    const kls = viewer.records.map((r) => r.klMax).filter((v) => v !== null).sort((a, b) => b - a);
    viewer.largeKl = kls.length ? kls[Math.max(0, Math.ceil(kls.length * LARGEST_SHARE) - 1)] : Infinity;
  }
}

function passes(record) {
  const viewer = DATA.viewers[state.viewer];
  const step = byId("filter-step").value;
  return (step === "" || record.step === Number(step))
    && (!byId("only-wrong").checked || record.status === "incorrect")
    && (!byId("only-right").checked || record.status === "correct")
    && (!byId("only-truncated").checked || record.truncated)
    && (!byId("only-repetition").checked || record.repetition >= viewer.high_repetition)
    && (!byId("only-kl").checked || (record.klMax !== null && record.klMax >= viewer.largeKl));
}

function searched() { return byId("filter-text").value.trim().toLowerCase(); }

async function find() {
  const ticket = ++state.search;
  const wanted = searched();
  let found = records().filter(passes);
  if (wanted) {
    const kept = [];
    const ids = [...new Set(found.map((r) => r.chunk))];
    for (const [i, id] of ids.entries()) {
      if (i % 20 === 0) byId("viewer-status").textContent = `Searching group ${i + 1} of ${ids.length} …`;
      const chunk = await chunkOf(id);
      if (ticket !== state.search) return;
      for (const r of found.filter((record) => record.chunk === id)) {
        const text = `${r.problem}\n${chunk.header.prompt}\n${wholeText(tokensOf(chunk, r.place))}`;
        if (text.toLowerCase().includes(wanted)) kept.push(r);
      }
    }
    found = kept;
  }
  const key = { kl: "klMax", repetition: "repetition", entropy: "entropy", length: "length", outward: "outward" }[byId("filter-sort").value];
  if (key) found = [...found].sort((a, b) => (b[key] ?? -1) - (a[key] ?? -1));
  Object.assign(state, { found, page: 0 });
  byId("viewer-status").textContent = `${found.length.toLocaleString("en")} of ${records().length.toLocaleString("en")} responses`;
  showList();
}

const number = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);

function verdict(record) {
  const words = { correct: "right", incorrect: "wrong" };
  return (words[record.status] || record.status || "no verdict") + (record.truncated ? ", cut off" : "");
}

function verdictNode(tag, record) {
  const className = record.status === "correct" ? "good" : record.status === "incorrect" ? "bad" : "";
  return element(tag, { className, textContent: `${record.status === "correct" ? "✓\u00a0" : record.status === "incorrect" ? "✗\u00a0" : ""}${verdict(record)}` });
}

function showList() {
  const pages = Math.max(1, Math.ceil(state.found.length / PAGE));
  const shown = state.found.slice(state.page * PAGE, (state.page + 1) * PAGE);
  byId("viewer-list").tBodies[0].replaceChildren(...shown.map((record) => {
    const button = element("button", { type: "button", textContent: `${record.step} · ${record.group}.${record.sample}` });
    button.setAttribute("aria-label", `Open step ${record.step}, group ${record.group}, sample ${record.sample}, ${verdict(record)}`);
    button.addEventListener("click", () => open(record));
    const row = element("tr", {}, element("td", {}, button), verdictNode("td", record), ...[
      record.length.toLocaleString("en"), number(record.entropy, 3), number(record.kl, 4), percent(record.repetition),
    ].map((textContent) => element("td", { textContent })));
    row.record = record;
    return row;
  }));
  byId("page-number").textContent = `Page ${state.page + 1} of ${pages}`;
  byId("page-back").disabled = state.page === 0;
  byId("page-on").disabled = state.page + 1 >= pages;
  markCurrent();
}

function markCurrent() {
  for (const row of byId("viewer-list").tBodies[0].rows) row.setAttribute("aria-current", String(row.record === state.current));
}

// ---- one response ----

async function open(record) {
  state.current = record;
  const chunk = await chunkOf(record.chunk);
  if (state.current !== record) return;
  state.tokens = tokensOf(chunk, record.place);
  state.at = -1;
  state.foundAt = tokensFound(state.tokens, searched());
  byId("response-title").textContent = `Step ${record.step}, group ${record.group}, sample ${record.sample}: ${verdict(record)}${record.reason ? ` (${record.reason})` : ""}`;
  byId("response-prompt").textContent = state.tokens.prompt;
  byId("exact").hidden = state.tokens.exact === null;
  byId("exact-text").textContent = state.tokens.exact ?? "";
  byId("token-values").textContent = "Point at a token, or move with the arrow keys, to see its values.";
  offerModes();
  fillTokens();
  showSiblings(record);
  markCurrent();
}

function offerModes() {
  const { tokens } = state;
  const any = (values) => values.some((value) => value !== MISSING);
  const since = byId("change-since");
  const options = [];
  if (any(tokens.reference)) options.push(["reference", "the reference (start)"]);
  for (const name of Object.keys(tokens.earlier)) if (any(tokens.earlier[name])) options.push([`earlier:${name}`, name]);
  if (any(tokens.update)) options.push(["update", "sampling (this step's update)"]);
  const kept = since.value;
  since.replaceChildren(...options.map(([value, textContent]) => element("option", { value, textContent })));
  if (options.some(([value]) => value === kept)) since.value = kept;
  const available = { entropy: true, role: tokens.roles, clip: tokens.clipping, kl: any(tokens.reference), change: options.length > 0 };
  const why = { role: "roles were not recorded", clip: "no clip state was recorded, or the objective has no clip range", kl: "this run has no reference", change: "nothing to compare with" };
  for (const radio of document.querySelectorAll("input[name=colour]")) {
    radio.disabled = !available[radio.value];
    radio.parentElement.title = radio.disabled ? why[radio.value] : "";
    if (radio.disabled && radio.checked) document.querySelector("input[value=entropy]").checked = true;
  }
  since.disabled = options.length === 0;
}

function fillTokens() {
  const spans = Array.from({ length: state.tokens.length }, (_, i) => element("span", { textContent: state.tokens.text(i).replaceAll("\n", "⏎\n") }));
  byId("tokens").replaceChildren(...spans);
  colourTokens();
  const first = [...state.foundAt][0];
  if (first !== undefined) byId("tokens").scrollTop = spans[first].offsetTop - byId("tokens").offsetTop - 40;
}

function tokensFound(tokens, wanted) {
  const found = new Set();
  if (!wanted) return found;
  const ends = [];
  let text = "";
  for (let i = 0; i < tokens.length; i += 1) {
    text += tokens.text(i).toLowerCase();
    ends.push(text.length);
  }
  for (let at = text.indexOf(wanted), i = 0; at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    while (ends[i] <= at) i += 1;
    for (let j = i; j < ends.length && (j === i || ends[j - 1] < at + wanted.length); j += 1) found.add(j);
  }
  return found;
}

function mode() { return document.querySelector("input[name=colour]:checked").value; }

function colourTokens() {
  const { scales } = DATA.viewers[state.viewer];
  const kind = mode();
  const since = byId("change-since").value;
  const top = kind === "change" ? scales[since] || 1 : scales[kind] || 1;
  [...byId("tokens").children].forEach((span, i) => {
    const [classes, share] = look(kind, state.tokens, i, since, top);
    span.className = classes + (i === state.at ? " current" : "") + (state.foundAt.has(i) ? " found" : "");
    span.style.setProperty("--t", `${Math.round(100 * Math.min(1, share))}%`);
  });
  showScale(kind, top, since);
}

function look(kind, tokens, i, since, top) {
  if (kind === "entropy") return ["heat", tokens.entropy[i] / SCALE / top];
  if (kind === "role") return hasFlag(tokens, i, FLAG.reasoning) ? ["heat strong", 0.85] : ["cool", 0.45];
  if (kind === "kl") return ["heat", (klAt(tokens, i) ?? 0) / top];
  if (kind === "change") {
    const change = changeAt(tokens, i, since) ?? 0;
    return [change < 0 ? "heat" : "cool", Math.abs(change) / top];
  }
  const outward = hasFlag(tokens, i, FLAG.outward) ? " outward" : "";
  if (hasFlag(tokens, i, FLAG.above)) return [`heat above${outward}`, 0.9];
  return hasFlag(tokens, i, FLAG.below) ? [`cool below${outward}`, 0.9] : ["", 0];
}

function showScale(kind, top, since) {
  const ramp = (background) => {
    const node = element("span", { className: "ramp" });
    node.style.background = background;
    return node;
  };
  const swatch_ = (variable, words) => element("span", {}, Object.assign(ramp(`var(${variable})`), { className: "ramp" }), words);
  const limit = top.toPrecision(2);
  const parts = {
    entropy: ["0 nats", ramp("linear-gradient(to right, transparent, var(--heat))"), `${limit} nats or more: where the policy hesitates`],
    kl: ["0 nats", ramp("linear-gradient(to right, transparent, var(--heat))"), `${limit} nats or more: furthest from the reference`],
    change: [`−${limit}`, ramp("linear-gradient(to right, var(--heat), transparent, var(--cool))"), `+${limit} nats of log-probability since ${byId("change-since").selectedOptions[0]?.textContent ?? since}`],
    role: [swatch_("--heat", "reasoning (underlined)"), swatch_("--cool", "knowledge")],
    clip: [swatch_("--heat", "ratio above its range (line above)"), swatch_("--cool", "below its range (line below)"), "boxed: its advantage pushes it further out, where hard clipping stops the gradient"],
  }[kind];
  byId("scale").replaceChildren(...parts);
}

function values(i) {
  const { tokens } = state;
  const surprise = tokens.surprise[i] / SCALE;
  const lines = [`Token ${i + 1} of ${tokens.length}: “${tokens.text(i).replaceAll("\n", "⏎")}”`,
    `entropy ${(tokens.entropy[i] / SCALE).toFixed(3)} nats, probability ${Math.exp(-surprise).toPrecision(3)} (log ${(-surprise).toFixed(3)})`];
  if (tokens.roles) lines.push(hasFlag(tokens, i, FLAG.reasoning) ? "reasoning token" : "knowledge token");
  const logRatio = changeAt(tokens, i, "update");
  if (logRatio !== null) {
    const where = !tokens.clipping ? "" : hasFlag(tokens, i, FLAG.above) ? ", above its range" : hasFlag(tokens, i, FLAG.below) ? ", below its range" : ", inside its range";
    lines.push(`ratio ${Math.exp(logRatio).toFixed(3)}${where}${hasFlag(tokens, i, FLAG.outward) ? ", pushed further out" : ""}`);
  }
  const kl = klAt(tokens, i);
  if (kl !== null) lines.push(`KL to the reference ${kl.toFixed(4)} nats`);
  for (const option of byId("change-since").options) {
    const change = option.value === "update" ? null : changeAt(tokens, i, option.value);
    if (change !== null) lines.push(`${change >= 0 ? "+" : "−"}${Math.abs(change).toFixed(3)} nats since ${option.textContent}`);
  }
  return lines;
}

function goTo(i) {
  const spans = byId("tokens").children;
  if (!spans.length) return;
  if (state.at >= 0) spans[state.at].classList.remove("current");
  state.at = Math.max(0, Math.min(spans.length - 1, i));
  const span = spans[state.at];
  span.classList.add("current");
  span.scrollIntoView({ block: "nearest" });
  byId("token-values").textContent = values(state.at).join(" · ");
}

function onKey(event) {
  const next = (step) => {
    for (let i = state.at + step; i >= 0 && i < state.tokens.length; i += step) if (hasFlag(state.tokens, i, FLAG.reasoning)) return i;
    return state.at;
  };
  if (!state.tokens || event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = {
    ArrowRight: () => state.at + 1, ArrowLeft: () => state.at - 1, Home: () => 0, End: () => state.tokens.length - 1,
    PageDown: () => state.at + PAGE_JUMP, PageUp: () => state.at - PAGE_JUMP, "]": () => next(1), "[": () => next(-1),
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  goTo(moves[event.key]());
}

function tokenUnder(event) {
  const span = event.target.closest("#tokens > span");
  return span ? [...byId("tokens").children].indexOf(span) : -1;
}

function hover(event) {
  const tip = byId("tooltip");
  const i = event.pointerType === "touch" ? -1 : tokenUnder(event);
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.textContent = values(i).join("\n");
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  const below = event.clientY + 18;
  tip.style.top = `${below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : below}px`;
}

// ---- neighbours ----

function showSiblings(record) {
  const group = records().filter((r) => r.chunk === record.chunk);
  byId("group-list").replaceChildren(...group.map((r) => siblingItem(r, `Sample ${r.sample}`, record)));
  const others = records().filter((r) => r.problem && r.problem === record.problem && r.step !== record.step && r.sample === record.sample);
  const items = others.map((r) => siblingItem(r, `Step ${r.step}`, record));
  byId("problem-list").replaceChildren(...(items.length ? items : [element("li", { textContent: "none stored here" })]));
}

function siblingItem(r, name, current) {
  const answer = r.extracted === null ? "no answer found" : `answer ${r.extracted.length > 40 ? `${r.extracted.slice(0, 39)}…` : r.extracted}`;
  const button = element("button", { type: "button" }, element("strong", { textContent: name }), " ", verdictNode("span", r), element("br"), `${r.length.toLocaleString("en")} tokens, ${answer}`);
  button.setAttribute("aria-current", String(r === current));
  button.addEventListener("click", async () => {
    await open(r);
    byId("response-title").focus();
  });
  return element("li", {}, button);
}

// ---- start ----

function chooseRun() {
  state.viewer = Number(byId("filter-run").value || 0);
  byId("viewer-sampling").textContent = DATA.viewers[state.viewer].sampling;
  const steps = [...new Set(records().map((r) => r.step))];
  byId("filter-step").replaceChildren(element("option", { value: "", textContent: "all" }), ...steps.map((s) => element("option", { value: s, textContent: s })));
  find();
  if (records().length) open(records()[0]);
}

function startViewer() {
  if (!byId("viewer-list")) return;
  index();
  byId("filter-run").addEventListener("change", chooseRun);
  byId("viewer-filters").addEventListener("submit", (event) => event.preventDefault());
  byId("viewer-filters").addEventListener("change", (event) => event.target.id !== "filter-run" && event.target.id !== "filter-text" && find());
  let wait = 0;
  byId("filter-text").addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(find, 250);
  });
  byId("page-back").addEventListener("click", () => { state.page -= 1; showList(); });
  byId("page-on").addEventListener("click", () => { state.page += 1; showList(); });
  byId("colouring").addEventListener("change", (event) => {
    if (event.target.id === "change-since") document.querySelector("input[value=change]").checked = true;
    colourTokens();
  });
  const tokens = byId("tokens");
  tokens.addEventListener("keydown", onKey);
  tokens.addEventListener("pointermove", hover);
  tokens.addEventListener("pointerleave", () => { byId("tooltip").hidden = true; });
  tokens.addEventListener("click", (event) => { const i = tokenUnder(event); if (i >= 0) goTo(i); });
  chooseRun();
}

startViewer();

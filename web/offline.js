// The site's service worker. It does two things.
//
// Static hosts send no headers, and a page gets memory that it shares with its worker only with two of them: they are added
// to what the site answers.
//
// And it keeps the site in the browser: every file that the manifest names, each compared with its hash, or none. Once all
// are there the page comes from them alone, with a network or without, until another version is there as whole and the
// reader takes it. The build writes its version below: so a new build is a new worker, and each serves one version.
const VERSION = "VERSION";
const PREFIX = `tabtorch ${registration.scope} `;
const CACHE = PREFIX + VERSION;
/** Entries of a cache. The first is written last: with it the cache is whole. */
const WHOLE = "whole";
const GUIDES = "guides"; // so is the documentation, which is fetched for those who read it
const MANIFEST = "manifest.json";

addEventListener("install", (event) => event.waitUntil(begin()));
addEventListener("activate", (event) => event.waitUntil(takeOver()));
addEventListener("message", (event) => event.waitUntil(hear(event)));
addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  if (method === "GET" && url.startsWith(registration.scope)) event.respondWith(answer(event.request));
});

/** Where an older version serves the page, this one is fetched as a whole, and waits. Else it works at once, for its headers. */
async function begin() {
  const others = (await ours()).filter((name) => name !== CACHE);
  const serves = await Promise.all(others.map((name) => isWhole(name)));
  if (serves.some(Boolean)) await fill();
  else await skipWaiting();
}

/** The version before stays: a tab may still be open in it, and start its Python again. */
async function takeOver() {
  const others = (await ours()).filter((name) => name !== CACHE);
  await Promise.all(others.slice(0, -1).map((name) => caches.delete(name)));
  await clients.claim();
}

async function hear({ data, source }) {
  if (data === "take over") await skipWaiting();
  if (data === "keep guides") await fillGuides().catch(() => {}); // asked for again on the next page
  if (data !== "keep") return;
  const kept = await fill().then(
    () => "kept",
    (error) => `not kept: ${error.message}`,
  );
  source?.postMessage(kept);
}

async function ours() {
  return (await caches.keys()).filter((name) => name.startsWith(PREFIX));
}

async function isWhole(name, entry = WHOLE) {
  return (await caches.match(entry, { cacheName: name })) !== undefined;
}

/** Fetch what this version lacks. Nothing is taken that is not what the manifest says, nor another version's. */
async function fill() {
  if (await isWhole(CACHE)) return;
  const read = (await caches.match(GUIDES)) !== undefined; // in the version before: they are brought along
  await takeAll(WHOLE, ([path]) => read || !isGuide(path));
  if (read) await (await caches.open(CACHE)).put(GUIDES, new Response());
}

/** The documentation of this version, once the rest is there. */
async function fillGuides() {
  if ((await isWhole(CACHE)) && !(await isWhole(CACHE, GUIDES))) await takeAll(GUIDES, ([path]) => isGuide(path));
}

function isGuide(path) {
  return /^docs\/|^assets\/docs-/.test(path);
}

async function takeAll(entry, isWanted) {
  const response = await fetch(MANIFEST, { cache: "no-cache" });
  const manifest = await response.clone().json();
  if (manifest.version !== VERSION) throw new Error(`the server has version ${manifest.version}`);
  const cache = await caches.open(CACHE);
  const wanted = Object.entries(manifest.hash).filter(isWanted);
  await Promise.all(wanted.map(([path, hash]) => take(cache, path, hash)));
  await cache.put(MANIFEST, response);
  await cache.put(entry, new Response());
}

async function take(cache, path, hash) {
  const address = `${path}?${hash}`;
  const response = (await caches.match(address)) ?? (await fetch(address));
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (!response.ok || !found.startsWith(hash)) throw new Error(`${path} is not what the manifest says`);
  await cache.put(address, new Response(bytes, { headers: { "Content-Type": response.headers.get("Content-Type") } }));
}

let hashes; // of this version's files, by path, once it is whole

async function answer(request) {
  if (!hashes && (await isWhole(CACHE)))
    hashes = (await (await caches.match(MANIFEST, { cacheName: CACHE })).json()).hash;
  const response = (hashes && (await kept(request))) ?? (await fetch(request));
  return isolated(response);
}

/** A file of this version. A tab that is still in the one before asks for files by names, or hashes, that only that has. */
async function kept(request) {
  const { pathname, search } = new URL(request.url);
  const path = pathname.slice(new URL(registration.scope).pathname.length).replace(/(^|\/)$/, "$1index.html");
  if (path === MANIFEST) return caches.match(MANIFEST, { cacheName: CACHE });
  const hash = hashes[path];
  if (hash && (request.mode === "navigate" || !search || search === `?${hash}`))
    return caches.match(`${path}?${hash}`, { cacheName: CACHE });
  return caches.match(request.url, { ignoreSearch: !hash });
}

function isolated(response) {
  if (response.type === "opaqueredirect" || response.status === 0) return response;
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}

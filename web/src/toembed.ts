/** `?embed` asks for the page of embeds. Imported first, this keeps everything else from being carried out meanwhile. */
if (new URLSearchParams(location.search).has("embed")) {
  location.replace(`./embed.html${location.search}${location.hash}`);
  await new Promise(() => {});
}

export {};

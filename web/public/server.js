// A classic script, because browsers load no modules from the disk: there it is all that runs, and says so.
if (location.protocol === "file:") {
  addEventListener("DOMContentLoaded", () => {
    const title = document.createElement("h1");
    title.textContent = "This page wants a web server";
    const words = document.createElement("p");
    words.textContent =
      "Browsers load neither Python nor WebGPU code from a file. Any server will do: run “tabtorch serve”, or, in this folder, " +
      "“python -m http.server 8000”, and open http://localhost:8000/.";
    document.body.replaceChildren(title, words);
    Object.assign(document.body.style, { display: "block", maxWidth: "40rem", margin: "2rem auto", padding: "0 1rem" });
  });
}

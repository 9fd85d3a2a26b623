// Search in a site that is opened from a disk. Browsers start no workers for pages of `file:` addresses, so the worker's
// script runs in a hidden frame of the page, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.ready = new Promise(resolve => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.srcdoc = "<!doctype html><title>Search</title>";
        frame.addEventListener("load", () => {
          const inner = frame.contentWindow;
          inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.src = address;
          script.addEventListener("load", () => resolve(inner));
          inner.document.head.append(script);
        }, { once: true });
        document.body.append(frame);
      });
    }

    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }
  };
}

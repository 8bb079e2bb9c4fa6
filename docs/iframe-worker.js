// Lets search work from a folder, without a server. Browsers start no worker from a file: address, so there its program
// runs in a hidden frame. By its name the theme's plugin `offline` knows that it need not load one from elsewhere.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      this.ready = new Promise((resolve) => inside.addEventListener("load", resolve));
      inside.document.write(
        "<!doctype html><script>postMessage = (data) => frameElement.answer(data)</" +
          `script><script src="${address}"></` + "script>",
      );
      inside.document.close();
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}

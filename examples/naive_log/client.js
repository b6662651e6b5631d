// A client of the naive log in JavaScript: requests on standard input, answers on standard output.
//
//     node client.js ADDRESS ...
//
// The addresses are those of the log's nodes, the one to try first at the front.

"use strict";

const net = require("node:net");
const readline = require("node:readline");

const TEMPORARILY_UNAVAILABLE = 11; // certainly nothing happened
const CRASH = 13; // nobody knows
const addresses = process.argv.slice(2);

class Failed extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

// Ask one node. Before the connection is made nothing can have happened; after that nobody knows.
function askNode(address, request, limitMs) {
  return new Promise((resolve, reject) => {
    const [host, port] = address.split(":");
    const socket = net.connect({ host, port: Number(port) });
    let connected = false;
    let text = "";
    const fail = (why) => {
      socket.destroy();
      reject(new Failed(connected ? CRASH : TEMPORARILY_UNAVAILABLE, why));
    };
    socket.setTimeout(limitMs, () => fail("no answer in time"));
    socket.on("error", (error) => fail(error.message));
    socket.on("close", () => fail("the connection ended before the answer"));
    socket.on("connect", () => {
      connected = true;
      socket.write(JSON.stringify(request) + "\n");
    });
    socket.on("data", (more) => {
      text += more;
      if (text.endsWith("\n")) {
        resolve(JSON.parse(text));
        socket.destroy();
      }
    });
  });
}

// Ask the leader, which is the node that does not say that it does not lead.
async function askLeader(request, limitMs) {
  for (const address of addresses) {
    try {
      const answer = await askNode(address, request, limitMs);
      if (!answer.error) return answer;
    } catch (error) {
      if (error.code !== TEMPORARILY_UNAVAILABLE) throw error;
    }
  }
  throw new Failed(TEMPORARILY_UNAVAILABLE, "no node leads");
}

const handlers = {
  init: async () => ({}),

  // A log begins with its first record, so it is enough that all nodes follow n1.
  create: async () => {
    for (const address of addresses) {
      const { leader } = await askNode(address, { do: "leader" }, 1000);
      if (leader !== "n1") throw new Failed(TEMPORARILY_UNAVAILABLE, `${address} follows ${leader}`);
    }
    return {};
  },

  send: async (body) => {
    const record = Buffer.from(body.msg, "base64").toString("hex");
    const request = { do: "append", partition: body.key, record };
    return { offset: (await askLeader(request, body.timeout_ms)).offset };
  },

  poll: async (body) => {
    const [[partition, from]] = Object.entries(body.offsets);
    const answer = await askLeader({ do: "read", partition, from }, body.timeout_ms);
    const records = answer.records.map((record, place) => [
      from + place,
      Buffer.from(record, "hex").toString("base64"),
    ]);
    return { msgs: { [partition]: records }, end: answer.end };
  },
};

async function answerTo(body) {
  try {
    return { type: `${body.type}_ok`, ...(await handlers[body.type](body)) };
  } catch (error) {
    return { type: "error", code: error.code ?? CRASH, text: error.message };
  }
}

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const { src, dest, body } = JSON.parse(line);
  const answer = { ...(await answerTo(body)), in_reply_to: body.msg_id };
  process.stdout.write(JSON.stringify({ src: dest, dest: src, body: answer }) + "\n");
});

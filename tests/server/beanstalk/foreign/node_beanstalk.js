// npm's node-beanstalk: the life of a job. Arguments: the port.
const assert = require("node:assert");
const { Client } = require("node-beanstalk");

async function main() {
  const client = new Client({ host: "127.0.0.1", port: Number(process.argv[2]) });
  await client.connect();
  await client.use("mail");
  await client.watch("mail");
  await client.ignore("default");
  const put = await client.put({ to: "ann" }, 60);
  const reserved = await client.reserveWithTimeout(5);
  assert.strictEqual(reserved.id, put.id);
  assert.deepStrictEqual(reserved.payload, { to: "ann" });
  assert(await client.touch(put.id));
  assert.strictEqual((await client.statsJob(put.id)).state, "reserved");
  assert(await client.release(put.id, 5, 0));
  assert.strictEqual((await client.reserveJob(put.id)).id, put.id);
  assert(await client.bury(put.id, 1));
  assert(await client.kickJob(put.id));
  assert.strictEqual((await client.reserveWithTimeout(5)).id, put.id);
  assert(await client.delete(put.id));
  assert.strictEqual(await client.reserveWithTimeout(0), null);
  assert.strictEqual((await client.statsTube("mail"))["current-jobs-reserved"], 0);
  await client.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });

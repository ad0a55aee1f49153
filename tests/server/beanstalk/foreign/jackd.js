// npm's jackd: the life of a job. Arguments: the port.
const assert = require("node:assert");
const Jackd = require("jackd");

async function main() {
  const client = new Jackd();
  await client.connect({ host: "127.0.0.1", port: Number(process.argv[2]) });
  await client.use("mail");
  await client.watch("mail");
  const put = await client.put("ann", { ttr: 60 });
  const { id, payload } = await client.reserveWithTimeout(5);
  assert.deepStrictEqual([String(id), String(payload)], [String(put), "ann"]);
  await client.touch(id);
  assert.match(await client.statsJob(id), /state: reserved/);
  await client.release(id, { priority: 5, delay: 0 });
  assert.strictEqual((await client.reserveWithTimeout(5)).id, id);
  await client.bury(id);
  await client.kickJob(id);
  assert.strictEqual((await client.reserveWithTimeout(5)).id, id);
  await client.delete(id);
  await assert.rejects(client.reserveWithTimeout(0), /TIMED_OUT/);
  await client.quit();
}

main().catch((error) => { console.error(error); process.exit(1); });

// npm's beanstalkd: the life of a job. Arguments: the port.
const assert = require("node:assert");
const { default: Beanstalkd } = require("beanstalkd");

async function main() {
  const client = await new Beanstalkd("127.0.0.1", Number(process.argv[2])).connect();
  await client.use("mail");
  await client.watch("mail");
  const put = await client.put(10, 0, 60, "ann");
  const [id, body] = await client.reserveWithTimeout(5);
  assert.deepStrictEqual([String(id), String(body)], [String(put), "ann"]);
  await client.touch(id);
  assert.strictEqual((await client.statsJob(id)).state, "reserved");
  await client.release(id, 5, 0);
  const [again] = await client.reserveWithTimeout(5);
  await client.bury(again, 1);
  await client.kickJob(again);
  const [last] = await client.reserveWithTimeout(5);
  await client.delete(last);
  await assert.rejects(client.reserveWithTimeout(0), /TIMED_OUT/);
  await client.quit();
}

main().catch((error) => { console.error(error); process.exit(1); });

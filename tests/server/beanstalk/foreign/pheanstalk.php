<?php
// Debian's pheanstalk: the life of a job. Arguments: the port.
require "Pheanstalk/autoload.php";

use Pheanstalk\Pheanstalk;

function check(bool $is_so, string $what): void
{
    if (!$is_so) {
        fwrite(STDERR, "$what\n");
        exit(1);
    }
}

$client = Pheanstalk::create("127.0.0.1", (int) $argv[1]);
$client->useTube("mail");
$client->watchOnly("mail");
$put = $client->put("ann", 10, 0, 60);
$job = $client->reserveWithTimeout(5);
check($job->getId() === $put->getId() && $job->getData() === "ann", "another job");
$client->touch($job);
check($client->statsJob($job)["state"] === "reserved", "its state");
$client->release($job, 5, 0);
$again = $client->reserveWithTimeout(5);
check($again->getId() === $put->getId(), "another job after its release");
$client->bury($again, 1);
check($client->peekBuried()->getId() === $put->getId(), "another job is buried");
$client->kickJob($again);
$client->delete($client->reserveWithTimeout(5));
check($client->reserveWithTimeout(0) === null, "one more job");
check((int) $client->statsTube("mail")["current-jobs-reserved"] === 0, "its tube");

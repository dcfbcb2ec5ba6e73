// node-redlock on one key, driven by lines: takes it, gives it back, or counts under it.
'use strict';

const readline = require('node:readline');
const { setTimeout: pause } = require('node:timers/promises');
const Redis = require('ioredis');
const Redlock = require('redlock');

const [port, key] = process.argv.slice(2);
const client = new Redis(Number(port), '127.0.0.1');
const once = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: -1, retryDelay: 10, retryJitter: 5 });
let lock;

async function answer(word, number) {
    if (word === 'lock') {
        try {
            lock = await once.lock(key, Number(number));
            return 'held';
        } catch (error) {
            if (error.name !== 'LockError') throw error;
            return 'busy';
        }
    }
    if (word === 'unlock') {
        try {
            await lock.unlock();
            return 'released';
        } catch (error) {
            if (error.name !== 'LockError') throw error;
            return 'not ours';
        }
    }
    for (let turn = 0; turn < Number(number); turn += 1) {
        const held = await patient.lock(key, 30000);
        const seen = Number(await client.get('counter'));
        await pause(2);
        await client.set('counter', seen + 1);
        await held.unlock();
    }
    return 'counted';
}

async function main() {
    console.log('ready');
    for await (const line of readline.createInterface({ input: process.stdin })) {
        console.log(await answer(...line.split(' ')));
    }
    client.disconnect();
}

main();

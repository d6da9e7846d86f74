// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {MindxtrainRegistry} from "../src/mindxtrain_registry.sol";
import {X402Receiver} from "../src/x402_receiver.sol";
import {Vm} from "../test/vm.sol";

/// forge script script/deploy.s.sol --rpc-url URL --broadcast --account NAME
/// PAYEE (and RUN_ID, 32 bytes of hex) in the environment: a receiver for that run's payments is made too.
contract Deploy {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    function run() external returns (MindxtrainRegistry registry, X402Receiver receiver) {
        address payee = vm.envOr("PAYEE", address(0));
        bytes32 runId = vm.envOr("RUN_ID", bytes32(0));
        vm.startBroadcast();
        registry = new MindxtrainRegistry();
        if (payee != address(0)) receiver = new X402Receiver(payee, runId);
        vm.stopBroadcast();
    }
}

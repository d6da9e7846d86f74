// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {X402Receiver} from "../src/x402_receiver.sol";
import {LyingToken, SilentToken, TestDollar} from "./token.sol";
import {Check} from "./vm.sol";

contract ReceiverTest is Check {
    TestDollar dollar;
    X402Receiver receiver;
    address constant PAYEE = address(0xBEEF);
    bytes32 constant RUN = bytes32(uint256(7));

    function setUp() public {
        dollar = new TestDollar("USDC", "2");
        receiver = new X402Receiver(PAYEE, RUN);
    }

    function test_it_names_its_payee_and_run() public view {
        require(receiver.payee() == PAYEE && receiver.runId() == RUN);
    }

    function test_nobody_cannot_be_paid() public {
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.NoPayee.selector));
        new X402Receiver(address(0), RUN);
    }

    function test_an_authorized_payment_arrives_and_goes_on() public {
        uint256 key = 0xA11CE;
        address payer = vm.addr(key);
        dollar.mint(payer, 10_000);
        bytes32 typehash = keccak256(
            "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
        );
        bytes32 hash = keccak256(
            abi.encode(typehash, payer, address(receiver), 10_000, 0, type(uint256).max, bytes32(uint256(5)))
        );
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(key, keccak256(abi.encodePacked("\x19\x01", dollar.DOMAIN_SEPARATOR(), hash)));
        dollar.transferWithAuthorization(
            payer, address(receiver), 10_000, 0, type(uint256).max, bytes32(uint256(5)), v, r, s
        );
        receiver.forward(address(dollar));
        same(dollar.balanceOf(PAYEE), 10_000);
        same(receiver.forwarded(address(dollar)), 10_000);
    }

    function test_a_token_that_returns_nothing_is_sent_on() public {
        SilentToken t = new SilentToken();
        t.mint(address(receiver), 9);
        receiver.forward(address(t));
        same(t.balanceOf(PAYEE), 9);
    }

    function test_a_token_that_moves_nothing_counts_nothing() public {
        LyingToken t = new LyingToken();
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.TransferFailed.selector, address(t)));
        receiver.forward(address(t));
        same(receiver.forwarded(address(t)), 0);
    }

    function test_nothing_is_not_sent() public {
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.NothingHere.selector, address(dollar)));
        receiver.forward(address(dollar));
    }

    function testFuzz_whoever_asks_the_payee_gets_it(address anyone, uint128 amount) public {
        vm.assume(amount > 0);
        dollar.mint(address(receiver), amount);
        vm.prank(anyone);
        receiver.forward(address(dollar));
        same(dollar.balanceOf(PAYEE), amount);
    }

    function testFuzz_it_takes_no_ether_and_no_other_call(bytes4 selector, bytes calldata rest, uint96 wei_) public {
        vm.assume(
            selector != X402Receiver.forward.selector && selector != receiver.payee.selector
                && selector != receiver.runId.selector && selector != receiver.forwarded.selector
        );
        vm.deal(address(this), wei_);
        (bool ok,) = address(receiver).call{value: wei_}(bytes.concat(selector, rest));
        require(!ok, "an unknown call succeeded");
    }
}

/// Payments and forwards in any order, by anyone.
contract ReceiverHandler is Check {
    TestDollar public immutable dollar;
    X402Receiver public immutable receiver;
    uint256 public paid;

    constructor(TestDollar d, X402Receiver r) {
        dollar = d;
        receiver = r;
    }

    function pay(uint64 amount) external {
        dollar.mint(address(receiver), amount);
        paid += amount;
    }

    function forward(address anyone) external {
        if (dollar.balanceOf(address(receiver)) == 0) return;
        vm.prank(anyone);
        receiver.forward(address(dollar));
    }
}

contract ReceiverInvariant is Check {
    ReceiverHandler handler;
    address constant PAYEE = address(0xBEEF);

    function setUp() public {
        handler = new ReceiverHandler(new TestDollar("USDC", "2"), new X402Receiver(PAYEE, bytes32(uint256(7))));
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(handler);
    }

    function invariant_all_that_was_paid_is_here_or_with_the_payee() public view {
        uint256 here = handler.dollar().balanceOf(address(handler.receiver()));
        uint256 there = handler.dollar().balanceOf(PAYEE);
        same(here + there, handler.paid());
        same(there, handler.receiver().forwarded(address(handler.dollar())));
    }
}

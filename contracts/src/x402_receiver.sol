// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

interface IERC20 {
    function balanceOf(address account) external view returns (uint256);
}

/// The address that one model's payments go to (`pay_to` of x402). What arrives can go to one payee alone, both named at
/// birth; anyone may send it on, nobody can send it elsewhere. What was earned stays readable by run.
contract X402Receiver {
    address public immutable payee;
    bytes32 public immutable runId;

    /// What has been sent on, by token.
    mapping(address asset => uint256 amount) public forwarded;

    event Forwarded(address indexed asset, uint256 amount);

    error NoPayee();
    error NothingHere(address asset);
    error TransferFailed(address asset);

    constructor(address payee_, bytes32 runId_) {
        if (payee_ == address(0) || payee_ == address(this)) revert NoPayee();
        payee = payee_;
        runId = runId_;
    }

    /// Sends all that is here of an ERC-20 token to the payee. Tokens that return nothing are taken too; what counts is that
    /// the balance has gone.
    function forward(address asset) external {
        uint256 amount = IERC20(asset).balanceOf(address(this));
        if (amount == 0) revert NothingHere(asset);
        forwarded[asset] += amount;
        (bool ok, bytes memory answer) = asset.call(abi.encodeWithSignature("transfer(address,uint256)", payee, amount));
        if (!ok || (answer.length != 0 && (answer.length < 32 || !abi.decode(answer, (bool))))) {
            revert TransferFailed(asset);
        }
        if (IERC20(asset).balanceOf(address(this)) != 0) revert TransferFailed(asset);
        emit Forwarded(asset, amount);
    }
}
